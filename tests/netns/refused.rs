//! DEL after a refused ADD. With the same configuration it must succeed. It has nothing to delete,
//! or it deletes the attachment of an ADD that preceded the mistake.

use crate::conf;
use braid_tests::{Sandbox, Value, json};
use std::fs;

/// A mistake in a call: the plugin, `CNI_ARGS`, and configuration keys. ADD refuses the call
/// because of them.
struct Mistake(&'static str, &'static str, Value);

fn mistakes() -> Vec<Mistake> {
    let mac = json!({"runtimeConfig": {"mac": "bogus"}});
    let masquerade = json!({"ipMasq": true, "ipMasqBackend": "magic"});
    let scope = json!({"ipam": {"type": "host-local", "subnet": "10.1.0.0/24",
        "routes": [{"dst": "0.0.0.0/0", "scope": 300}]}});
    let ranges =
        json!({"ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.2.0.1"}});
    vec![
        Mistake("bridge", "", mac.clone()),
        Mistake("bridge", "MAC=bogus", json!({})),
        Mistake("bridge", "IP=bogus", json!({})),
        Mistake("bridge", "", json!({"bridge": "a/b"})),
        Mistake("bridge", "", json!({"bridge": "a234567890123456"})),
        Mistake("bridge", "", json!({"mtu": -5})),
        Mistake("bridge", "", json!({"mtu": 100_000})),
        Mistake("bridge", "", masquerade.clone()),
        Mistake(
            "bridge",
            "",
            json!({"hairpinMode": true, "promiscMode": true}),
        ),
        Mistake("bridge", "", json!({"disableContainerInterface": true})),
        Mistake("bridge", "", scope),
        Mistake("bridge", "", ranges),
        Mistake("bridge", "", json!({"ipam": {"type": "bridge"}})),
        Mistake(
            "bridge",
            "",
            json!({"prevResult": {"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.2/24"}}}),
        ),
        Mistake("bridge", "", json!({"prevResult": {"ips": "x"}})),
        Mistake("ptp", "", json!({"mtu": -1})),
        Mistake("ptp", "", masquerade),
        Mistake("ptp", "", json!({"ipam": {}})),
        Mistake("bridge", "", json!({"device": "netkit", "mode": "l3"})),
        Mistake("ptp", "", json!({"device": "tap"})),
        Mistake("macvlan", "MAC=00:00:5e:00:53:01:02:03", json!({})),
        Mistake("macvlan", "", json!({"mode": "magic"})),
        Mistake("macvlan", "", mac),
    ]
}

fn host_with_lan() -> Sandbox {
    let host = Sandbox::new();
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    host
}

/// Returns a valid configuration of `plugin` that creates more than a link.
fn good(plugin: &str) -> Value {
    let (mut conf, rules): (_, &[&str]) = match plugin {
        "bridge" => (conf::bridge(), &["ipMasq", "macspoofchk"]),
        "ptp" => (conf::ptp(), &["ipMasq"]),
        _ => (conf::macvlan(), &[]),
    };
    for key in rules {
        conf[*key] = json!(true);
    }
    conf
}

/// Returns the configuration of [`good`] with the keys of the mistake added.
fn bad(Mistake(plugin, _, keys): &Mistake) -> Value {
    let mut conf = good(plugin);
    conf.as_object_mut()
        .unwrap()
        .extend(keys.as_object().unwrap().clone());
    conf
}

#[test]
fn del_after_a_refused_add_changes_nothing() {
    let host = host_with_lan();
    let pod = host.pod("a");
    for mistake in mistakes() {
        let before = host.state();
        let (conf, args) = (bad(&mistake), mistake.1);
        let call = host.call(mistake.0, &pod, conf.clone()).args(args);
        let refusal = call.add().error();
        assert!([4, 6, 7].contains(&refusal.code), "{refusal:?}");
        call.del().ok();
        let list =
            json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [conf]});
        host.call("braid", &pod, list).args(args).del().ok();
        before.assert_same(&host.state());
    }
}

#[test]
fn del_without_a_record_deletes_the_attachment_despite_the_mistake() {
    let host = host_with_lan();
    for mistake in mistakes() {
        let pod = host.pod("a");
        let call = host.call(mistake.0, &pod, good(mistake.0));
        call.add().result();
        fs::remove_dir_all("/run/braid/attachments").unwrap();
        host.call(mistake.0, &pod, bad(&mistake))
            .args(mistake.1)
            .del()
            .ok();
        assert_eq!(pod.link_names(), Vec::<String>::new(), "{:?}", mistake.2);
        let left = host.leftovers();
        // If the mistake removes the IPAM's type, braid cannot know which IPAM assigned the
        // address.
        let is_lease = |left: &String| left.starts_with("/var/lib/cni");
        let names_ipam = mistake
            .2
            .get("ipam")
            .is_none_or(|ipam| ipam["type"] == "host-local");
        assert!(
            left.iter().all(|left| is_lease(left) && !names_ipam),
            "{:?}: {left:?}",
            mistake.2
        );
        call.del().ok();
        host.assert_nothing_left();
        host.end(&pod);
        fs::remove_file(pod.path()).unwrap();
    }
}

#[test]
fn del_with_a_record_releases_the_address_despite_the_mistake() {
    let host = host_with_lan();
    for mistake in mistakes() {
        let pod = host.pod("a");
        host.call(mistake.0, &pod, good(mistake.0)).add().result();
        host.call(mistake.0, &pod, bad(&mistake))
            .args(mistake.1)
            .del()
            .ok();
        assert_eq!(pod.link_names(), Vec::<String>::new(), "{:?}", mistake.2);
        assert_eq!(host.leftovers(), Vec::<String>::new(), "{:?}", mistake.2);
        host.end(&pod);
        fs::remove_file(pod.path()).unwrap();
    }
}

#[test]
fn del_of_a_refused_chained_plugin_changes_nothing() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let main = host.call("bridge", &pod, conf::bridge());
    let result = main.add().result();
    let duplicate = r#"{"cniVersion": "1.1.0", "name": "net", "type": "tuning",
        "sysctl": {"net.core.somaxconn": "1", "net.core.somaxconn": "2"}, "prevResult": {}}"#;
    let of = |plugin: &str| json!({"cniVersion": "1.1.0", "name": "net", "type": plugin});
    let mapping =
        json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "magic"}]});
    let before = host.leftovers();
    let calls = [
        host.call("tuning", &pod, of("tuning"))
            .with("mtu", -1)
            .prev(&result),
        host.call("tuning", &pod, of("tuning"))
            .with("mac", "bogus")
            .prev(&result),
        host.call("tuning", &pod, of("tuning")).stdin(duplicate),
        host.call("tuning", &pod, of("tuning"))
            .with("prevResult", json!({"ips": "x"})),
        host.call("portmap", &pod, of("portmap"))
            .with("runtimeConfig", mapping)
            .prev(&result),
        host.call("firewall", &pod, of("firewall"))
            .with("ingressPolicy", "magic")
            .prev(&result),
        host.call("bandwidth", &pod, of("bandwidth"))
            .with("ingressRate", 5)
            .prev(&result),
    ];
    for call in calls {
        let answer = call.add();
        assert_eq!(answer.code, 1, "{call:?}");
        call.del().ok();
        assert_eq!(host.leftovers(), before);
    }
    assert_eq!(pod.the_link("eth0")["mtu"], 1500);
    main.del().ok();
    host.assert_nothing_left();
}
