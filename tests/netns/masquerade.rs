//! `ipMasq`: the source addresses that machines outside see on real connections.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json, state};
use std::rc::Rc;

/// Creates the container `name`. Returns its namespace, and a call that attaches it with
/// masquerading and default routes.
fn masqueraded(host: &Sandbox, plugin: &str, name: &str) -> (Rc<Ns>, Call) {
    let pod = host.pod(name);
    let base = if plugin == "bridge" {
        conf::bridge()
    } else {
        conf::ptp()
    };
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]});
    let call = host
        .call(plugin, &pod, base)
        .with("ipMasq", true)
        .with("ipam", ipam);
    (pod, call)
}

fn outside(host: &Sandbox) -> Rc<Ns> {
    let outside = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    host.run("ip addr add 2001:db8::1/64 dev world nodad");
    outside.run("ip addr add 2001:db8::2/64 dev world nodad");
    outside
}

#[test]
fn the_world_outside_sees_the_host_in_both_families() {
    for plugin in ["bridge", "ptp"] {
        let host = Sandbox::new();
        let outside = outside(&host);
        let (pod, call) = masqueraded(&host, plugin, "a");
        call.add().result();
        assert_eq!(
            pod.seen_by(&outside, "192.0.2.2").to_string(),
            "192.0.2.1",
            "{plugin}"
        );
        assert_eq!(
            pod.seen_by(&outside, "2001:db8::2").to_string(),
            "2001:db8::1",
            "{plugin}"
        );
    }
}

#[test]
fn containers_of_one_network_see_each_other() {
    for plugin in ["bridge", "ptp"] {
        let host = Sandbox::new();
        let (a, call) = masqueraded(&host, plugin, "a");
        call.add().result();
        let (b, call) = masqueraded(&host, plugin, "b");
        call.add().result();
        assert_eq!(
            b.seen_by(&a, "10.1.0.2").to_string(),
            "10.1.0.3",
            "{plugin}"
        );
        assert_eq!(
            b.seen_by(&a, "fd00:1::2").to_string(),
            "fd00:1::3",
            "{plugin}"
        );
    }
}

#[test]
fn without_ip_masq_the_world_outside_sees_the_container() {
    let host = Sandbox::new();
    let outside = outside(&host);
    outside.run("ip route add 10.1.0.0/24 via 192.0.2.1");
    let (pod, call) = masqueraded(&host, "bridge", "a");
    call.with("ipMasq", false).add().result();
    assert_eq!(pod.seen_by(&outside, "192.0.2.2").to_string(), "10.1.0.2");
    assert!(state::elements(&host).is_empty());
}

#[test]
fn each_known_backend_masquerades_and_an_unknown_one_is_refused() {
    for backend in ["iptables", "nftables"] {
        let host = Sandbox::new();
        let outside = outside(&host);
        let (pod, call) = masqueraded(&host, "bridge", "a");
        call.with("ipMasqBackend", backend).add().result();
        assert_eq!(pod.seen_by(&outside, "192.0.2.2").to_string(), "192.0.2.1");
    }
    let host = Sandbox::new();
    let (_, call) = masqueraded(&host, "bridge", "a");
    let before = host.state();
    call.with("ipMasqBackend", "pf")
        .add()
        .refused(7, &["unknown ipmasq backend \"pf\""]);
    before.assert_same(&host.state());
}

#[test]
fn an_element_names_its_owner_and_is_deleted_only_with_it() {
    let host = Sandbox::new();
    let (_, first) = masqueraded(&host, "bridge", "a");
    let (_, second) = masqueraded(&host, "bridge", "b");
    first.add().result();
    second.add().result();
    let of = |name: &str| {
        let owner = format!("net {name} eth0");
        state::elements(&host)
            .into_iter()
            .filter(|element| element.contains(&owner))
            .count()
    };
    assert_eq!((of("a"), of("b")), (2, 2), "{:?}", state::elements(&host));
    first.del().ok();
    assert_eq!((of("a"), of("b")), (0, 2));
    second.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_stale_element_of_an_address_is_taken_over_by_its_new_owner() {
    for subnet in ["10.1.0.0/24", "10.1.0.0/16"] {
        let host = Sandbox::new();
        let outside = outside(&host);
        let (_, dead) = masqueraded(&host, "ptp", "a");
        dead.add().result();
        // After this, the node has lost its records and leases, but not its rules.
        std::fs::remove_dir_all("/run/braid").unwrap();
        std::fs::remove_dir_all("/var/lib/cni/networks").unwrap();
        let (pod, call) = masqueraded(&host, "bridge", "b");
        let ipam =
            json!({"type": "host-local", "subnet": subnet, "routes": [{"dst": "0.0.0.0/0"}]});
        let call = call.with("ipam", ipam);
        let result = call.add().result();
        assert!(
            result["ips"][0]["address"]
                .as_str()
                .unwrap()
                .starts_with("10.1.0.2/"),
            "the same address again"
        );
        // A late DEL for the terminated container must not delete the element of the address' new
        // owner.
        dead.del().ok();
        call.check(&result).ok();
        assert_eq!(
            pod.seen_by(&outside, "192.0.2.2").to_string(),
            "192.0.2.1",
            "{subnet}"
        );
    }
}

#[test]
fn a_foreign_table_is_not_changed() {
    let host = Sandbox::new();
    let outside = outside(&host);
    host.run("nft add table inet other");
    host.run(
        "nft add chain inet other c { type filter hook forward priority 0 ; policy accept ; }",
    );
    let others = host.run("nft list table inet other");
    let (pod, call) = masqueraded(&host, "bridge", "a");
    call.add().result();
    assert_eq!(pod.seen_by(&outside, "192.0.2.2").to_string(), "192.0.2.1");
    call.del().ok();
    assert_eq!(host.run("nft list table inet other"), others);
}

#[test]
fn nft_lists_the_ruleset_as_intended() {
    let host = Sandbox::new();
    let (_, call) = masqueraded(&host, "bridge", "a");
    call.add().result();
    let text = host.run("nft list table inet braid");
    for line in [
        "ip saddr vmap @masquerade4",
        "ip6 saddr vmap @masquerade6",
        "10.1.0.2 comment \"net a eth0\" : goto outside-10.1.0.0/24",
        "ip daddr 10.1.0.0/24 return",
        "ip daddr 224.0.0.0/4 return",
        "ip6 daddr ff00::/8 return",
        "type nat hook postrouting priority srcnat; policy accept;",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let json: Value = host.json("nft -j list ruleset");
    assert!(
        json["nftables"]
            .as_array()
            .is_some_and(|items| items.len() > 5),
        "{json}"
    );
}
