//! DEL: it succeeds even if parts of the attachment are already gone, and leaves nothing.

use crate::conf;
use braid_tests::{Call, Feature, Ns, Sandbox, Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

/// Returns a call for each plugin type that creates something.
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
fn del_restores_the_host_except_for_shared_links() {
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
fn a_second_del_succeeds() {
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
fn del_without_an_attachment_succeeds_and_creates_nothing() {
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
fn del_succeeds_with_an_empty_plain_or_missing_namespace_path() {
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
            // The call does not name the namespace, so links that exist only in the container may
            // stay.
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
fn del_succeeds_when_the_link_is_gone() {
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
fn del_needs_no_record() {
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
fn a_truncated_record_counts_as_missing() {
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
fn del_with_a_changed_configuration_deletes_the_recorded_attachment() {
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

/// Returns a `host-local` IPAM that stores its leases in `folder`.
fn kept_in(folder: &str) -> Value {
    json!({"type": "host-local", "subnet": "10.1.0.0/24", "dataDir": folder})
}

#[test]
fn an_address_is_released_to_the_ipam_that_assigned_it() {
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
fn a_foreign_ipam_gets_at_del_its_configuration_of_add_and_the_result() {
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
fn a_repeated_add_releases_the_first_address_to_its_ipam() {
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
    // The next ADD is in another namespace, after the end of the first one.
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
fn del_with_an_invalid_configuration_deletes_the_recorded_attachment() {
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
fn del_of_one_interface_keeps_the_others() {
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

/// Folder in which each call records the host links that it is about to delete.
const NOTES: &str = "/run/braid/leaving";

/// Records a link in [`NOTES`], like a call in the network namespace with the cookie `netns`.
fn note(netns: u64, link: &str, index: u64) {
    fs::create_dir_all(NOTES).unwrap();
    fs::write(format!("{NOTES}/{netns}:{index}:{link}"), "").unwrap();
}

/// Returns the cookie of the network namespace of this thread (`SO_NETNS_COOKIE`).
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

/// Attaches the container `a` to a bridge, and returns the call.
fn bridged(host: &Sandbox) -> Call {
    let call = host.call("bridge", &host.pod("a"), conf::bridge());
    call.add().result();
    call
}

#[test]
fn links_that_another_call_is_about_to_delete_are_deleted_too() {
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
fn a_stopped_call_that_holds_the_lock_does_not_block_others_for_long() {
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
fn a_stale_note_of_a_killed_call_deletes_no_later_or_foreign_link() {
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
