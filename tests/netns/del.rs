//! DEL: succeeds whatever is already gone, and leaves nothing.

use crate::conf;
use braid_tests::{Call, Feature, Ns, Sandbox, Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

/// Every type that makes something, ready to be attached.
fn attachments(host: &Sandbox, pod: &Ns) -> Vec<Call> {
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    host.run("ip link add dev0 link lan type macvlan mode bridge");
    let masqueraded = |plugin: &str, conf: Value| host.call(plugin, pod, conf).with("ipMasq", true);
    let netkit = Feature::Netkit.is_here().then(|| {
        masqueraded("netkit", conf::netkit())
            .with("name", "net6")
            .ifname("eth6")
    });
    let others = vec![
        masqueraded("bridge", conf::bridge()).with("macspoofchk", true),
        masqueraded("ptp", conf::ptp())
            .with("name", "net2")
            .ifname("eth2"),
        host.call("macvlan", pod, conf::macvlan())
            .with("name", "net3")
            .ifname("eth3"),
        host.call("host-device", pod, conf::host_device())
            .with("name", "net4")
            .ifname("eth4"),
        host.call("tap", pod, conf::tap())
            .with("name", "net5")
            .ifname("eth5"),
        host.call(
            "loopback",
            pod,
            json!({"cniVersion": "1.1.0", "name": "lo", "type": "loopback"}),
        )
        .ifname("lo"),
    ];
    others.into_iter().chain(netkit).collect()
}

fn attached(host: &Sandbox) -> (Rc<Ns>, Vec<(Call, Value)>) {
    let pod = host.pod("a");
    let calls = attachments(host, &pod);
    let with_results = calls.into_iter().map(|call| {
        let result = call.add().result();
        (call, result)
    });
    (pod, with_results.collect())
}

#[test]
fn the_whole_host_is_as_it_was_but_for_what_the_node_shares() {
    let host = Sandbox::new();
    let (pod, calls) = attached(&host);
    for (call, result) in calls {
        call.prev(&result).del().ok();
    }
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
    let mut names = host.link_names();
    names.sort();
    assert_eq!(names, ["br0", "dev0", "lan"], "the bridge stays");
}

#[test]
fn twice_succeeds() {
    let host = Sandbox::new();
    let (_pod, calls) = attached(&host);
    for (call, _) in &calls {
        call.del().ok();
    }
    let before = host.state();
    for (call, _) in &calls {
        call.del().ok();
    }
    before.assert_same(&host.state());
}

#[test]
fn of_nothing_succeeds_and_makes_nothing() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let calls = attachments(&host, &pod);
    let before = host.state();
    for call in calls {
        call.del().ok();
    }
    before.assert_same(&host.state());
}

#[test]
fn succeeds_without_a_namespace_with_a_plain_file_and_with_no_path() {
    for how in ["empty", "plain file", "no file"] {
        let host = Sandbox::new();
        let (pod, calls) = attached(&host);
        if how != "empty" {
            host.end(&pod);
        }
        if how == "no file" {
            fs::remove_file(pod.path()).unwrap();
        }
        for (call, _) in calls {
            if how == "empty" {
                call.env("CNI_NETNS", None).del().ok();
            } else {
                call.del().ok();
            }
        }
        if how == "empty" {
            // Nobody told where the container is, so what is in it alone may stay.
            assert!(
                pod.link_names()
                    .iter()
                    .all(|name| name == "eth3" || name == "eth5"),
                "{:?}",
                pod.link_names()
            );
        }
        host.assert_nothing_left();
    }
}

#[test]
fn succeeds_when_the_link_is_gone() {
    let host = Sandbox::new();
    let (pod, calls) = attached(&host);
    for name in pod.link_names() {
        pod.run(&format!("ip link del {name}"));
    }
    for (call, _) in calls {
        call.del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn needs_no_record() {
    for with_netns in [true, false] {
        let host = Sandbox::new();
        let (pod, calls) = attached(&host);
        fs::remove_dir_all("/run/braid").unwrap();
        if !with_netns {
            host.end(&pod);
        }
        for (call, _) in calls {
            call.del().ok();
        }
        host.assert_nothing_left();
    }
}

#[test]
fn a_record_that_is_cut_off_counts_as_none() {
    let host = Sandbox::new();
    let (_pod, calls) = attached(&host);
    for entry in fs::read_dir("/run/braid/attachments/a").unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
    }
    for (call, _) in calls {
        call.del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn a_configuration_that_changed_meanwhile_takes_back_what_was_made() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipMasq", true)
        .with("macspoofchk", true);
    call.add().result();
    let ipam = json!({"type": "host-local", "subnet": "10.99.0.0/24"});
    host.call("bridge", &pod, conf::bridge_l2())
        .with("bridge", "br9")
        .with("ipam", ipam)
        .del()
        .ok();
    host.assert_nothing_left();
}

/// A `host-local` with its leases in a folder of its own.
fn kept_in(folder: &str) -> Value {
    json!({"type": "host-local", "subnet": "10.1.0.0/24", "dataDir": folder})
}

#[test]
fn an_address_is_given_back_to_the_ipam_that_gave_it() {
    let others = [
        kept_in("/run/leases/b"),
        json!({"type": "host-local", "subnet": "10.99.0.0/24"}),
        json!({"type": "static", "addresses": [{"address": "10.1.0.9/24"}]}),
        json!({"type": "gone"}),
        json!({}),
    ];
    for (other, is_list) in others
        .iter()
        .flat_map(|other| [(other, false), (other, true)])
    {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let conf = |ipam: &Value| {
            let mut conf = conf::bridge();
            conf["ipam"] = ipam.clone();
            let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [conf.clone()]});
            if is_list { list } else { conf }
        };
        let call = host.call(
            if is_list { "braid" } else { "bridge" },
            &pod,
            conf(&kept_in("/run/leases/a")),
        );
        call.add().result();
        assert!(Path::new("/run/leases/a/net/10.1.0.2").exists());
        call.conf(conf(other)).del().ok();
        assert!(
            !Path::new("/run/leases/a/net/10.1.0.2").exists(),
            "{other} {is_list}"
        );
        assert!(!Path::new("/run/leases/b").exists(), "{other} {is_list}");
        host.assert_nothing_left();
    }
}

#[test]
fn a_foreign_ipam_is_told_what_add_told_it_and_the_result() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let answer = r#"{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.7/24"}]}"#;
    host.script(
        "theirs",
        &format!("#!/bin/sh\ncat > /run/told.$CNI_COMMAND\necho '{answer}'\n"),
    );
    let ipam = |pool: &str| json!({"type": "theirs", "pool": pool});
    let runtime = json!({"ips": ["10.1.0.7"]});
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("isGateway", false);
    let call = call
        .with("ipam", ipam("a"))
        .with("runtimeConfig", runtime.clone());
    let result = call.add().result();
    call.with("runtimeConfig", Value::Null)
        .with("ipam", ipam("b"))
        .prev(&result)
        .del()
        .ok();
    let told: Value = serde_json::from_str(&fs::read_to_string("/run/told.DEL").unwrap()).unwrap();
    assert_eq!(
        (&told["ipam"], &told["runtimeConfig"], &told["prevResult"]),
        (&ipam("a"), &runtime, &result)
    );
}

#[test]
fn an_add_that_begins_again_gives_the_first_ones_address_back_to_who_gave_it() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipam", kept_in("/run/leases/a"));
    call.add().result();
    pod.run("ip link del eth0");
    let again = call.with("ipam", kept_in("/run/leases/b"));
    again.add().result();
    assert!(!Path::new("/run/leases/a/net/10.1.0.2").exists());
    // And where it was in another namespace, which is gone.
    host.end(&pod);
    let other = host.pod("b");
    again
        .netns(other.path())
        .with("ipam", kept_in("/run/leases/c"))
        .add()
        .result();
    assert!(!Path::new("/run/leases/b/net/10.1.0.2").exists());
    assert!(Path::new("/run/leases/c/net/10.1.0.2").exists());
}

#[test]
fn a_configuration_that_no_longer_parses_takes_back_what_was_made() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipMasq", true);
    call.add().result();
    call.with("vlan", 9999).del().ok();
    host.assert_nothing_left();
}

#[test]
fn of_one_interface_keeps_the_containers_others() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let first = host
        .call("bridge", &pod, conf::bridge())
        .with("ipMasq", true);
    let second = first.clone().ifname("net1");
    first.add().result();
    let result = second.add().result();
    first.del().ok();
    second.check(&result).ok();
    assert_eq!(pod.link_names(), ["net1"]);
}

/// What calls note of the host's links that they are about to take away.
const NOTES: &str = "/run/braid/leaving";

/// Notes a link, as a call in a namespace with that number does.
fn note(netns: u64, link: &str, index: u64) {
    fs::create_dir_all(NOTES).unwrap();
    fs::write(format!("{NOTES}/{netns}:{index}:{link}"), "").unwrap();
}

/// The number of the namespace that this thread is in (`SO_NETNS_COOKIE`).
fn own_number() -> u64 {
    let ask =
        "import socket; print(int.from_bytes(socket.socket().getsockopt(1, 71, 8), 'little'))";
    let answer = Command::new("python3").args(["-c", ask]).output().unwrap();
    String::from_utf8_lossy(&answer.stdout)
        .trim()
        .parse()
        .unwrap()
}

fn index_of(host: &Sandbox, link: &str) -> u64 {
    host.the_link(link)["ifindex"].as_u64().unwrap()
}

/// A container on a bridge.
fn bridged(host: &Sandbox) -> Call {
    let call = host.call("bridge", &host.pod("a"), conf::bridge());
    call.add().result();
    call
}

#[test]
fn what_another_call_is_about_to_take_away_goes_along() {
    let host = Sandbox::new();
    let call = bridged(&host);
    for link in ["mine1", "mine2"] {
        host.run(&format!("ip link add {link} type veth peer name {link}p"));
        note(own_number(), link, index_of(&host, link));
    }
    call.del().ok();
    assert_eq!(host.link_names(), ["br0"]);
    assert_eq!(fs::read_dir(NOTES).expect("folder").count(), 0);
}

#[test]
fn a_call_that_is_stopped_in_its_turn_holds_up_no_other_for_long() {
    let host = Sandbox::new();
    let call = bridged(&host);
    fs::create_dir_all("/run/braid/lock").unwrap();
    let turn = fs::File::create("/run/braid/lock/links").unwrap();
    turn.lock().unwrap();
    call.del().ok();
    host.assert_nothing_left();
    drop(turn);
}

#[test]
fn a_note_that_a_killed_call_left_means_no_later_link_and_no_other_namespaces() {
    let host = Sandbox::new();
    let call = bridged(&host);
    host.run("ip link add later type veth peer name other");
    note(own_number(), "later", index_of(&host, "later") + 100);
    note(own_number(), "gone", 7);
    note(1, "other", index_of(&host, "other"));
    call.del().ok();
    assert_eq!(host.link_names().len(), 3, "{:?}", host.link_names());
    let left: Vec<_> = fs::read_dir(NOTES)
        .expect("folder")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(
        left,
        [format!("1:{}:other", index_of(&host, "other")).as_str()]
    );
    call.del().ok();
}
