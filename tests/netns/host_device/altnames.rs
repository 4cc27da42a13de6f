//! Devices with a name that conflicts with an alternative name, in the container or on the host.

use super::identity::attach;
use braid_tests::{Ns, Sandbox, Value, json};

/// Creates a sandbox with a device `nica` on the host.
fn host() -> Sandbox {
    let host = Sandbox::new();
    host.run("ip tuntap add nica mode tap");
    host
}

fn give_alt_name(ns: &Ns, link: &str, name: &str) {
    ns.run(&format!("ip link property add dev {link} altname {name}"));
}

fn alt_names(host: &Sandbox) -> Value {
    host.the_link("nica")["altnames"].clone()
}

/// Moves `net1` to the host, like a DEL that is killed after this step.
fn move_by_hand(pod: &Ns, more: &str) {
    let (process, thread) = (std::process::id(), nix::unistd::gettid());
    pod.run(&format!(
        "ip link set net1 netns /proc/{process}/task/{thread}/ns/net {more}"
    ));
}

#[test]
fn a_device_returns_although_its_name_became_its_alternative_name() {
    for is_moved in [false, true] {
        let host = host();
        let pod = host.pod("a");
        let call = attach(&host, &pod, "nica", "net1");
        call.add().result();
        give_alt_name(&pod, "net1", "nica");
        if is_moved {
            move_by_hand(&pod, "");
            assert_eq!(host.link_names(), ["net1"]);
        }
        for _ in 0..2 {
            call.del().ok();
            assert_eq!(
                (host.link_names(), alt_names(&host)),
                (vec!["nica".to_owned()], Value::Null)
            );
        }
        assert_eq!(pod.link_names(), [""; 0]);
        host.assert_nothing_left();
    }
}

#[test]
fn gc_and_del_without_a_record_handle_alternative_names() {
    for is_gc in [false, true] {
        let host = host();
        let pod = host.pod("a");
        let call = attach(&host, &pod, "nica", "net1");
        call.add().result();
        give_alt_name(&pod, "net1", "nica");
        if is_gc {
            call.gc(&[]).ok();
        } else {
            std::fs::remove_dir_all("/run/braid/attachments").unwrap();
            call.del().ok();
        }
        assert_eq!(
            (host.link_names(), alt_names(&host)),
            (vec!["nica".to_owned()], Value::Null)
        );
        host.assert_nothing_left();
    }
}

#[test]
fn an_alternative_name_equal_to_the_interface_name_is_restored() {
    let host = host();
    host.run("ip link set nica alias of.the.host");
    for name in ["storage", "net1"] {
        give_alt_name(&host, "nica", name);
    }
    let pod = host.pod("a");
    let before = host.state().without_marks();
    let call = attach(&host, &pod, "net1", "net1");
    let result = call.add().result();
    call.check(&result).ok();
    assert_eq!(pod.the_link("net1")["altnames"], json!(["storage"]));
    call.del().ok();
    before.assert_same(&host.state().without_marks());
    host.assert_nothing_left();

    // A DEL that is killed before it restores the name leaves this state.
    call.add().result();
    move_by_hand(&pod, "name nica alias of.the.host");
    assert_eq!(alt_names(&host), json!(["storage"]));
    call.del().ok();
    before.assert_same(&host.state().without_marks());
    host.assert_nothing_left();

    let routes = json!([{"dst": "192.0.2.0/24", "gw": "203.0.113.1"}]);
    let ipam = json!({"type": "host-local", "subnet": "10.8.0.0/24", "routes": routes});
    call.with("ipam", ipam)
        .add()
        .refused(999, &["192.0.2.0/24"]);
    before.assert_same(&host.state().without_marks());
    host.assert_nothing_left();
}

#[test]
fn add_names_the_container_link_with_an_alternative_name_of_the_device() {
    for (taken, words) in [
        (
            "storage",
            &["nica", "the container has another link called \"storage\""][..],
        ),
        (
            "other",
            &[
                "nica",
                "the container has another link called \"storage\"",
                "\"other\"",
            ],
        ),
    ] {
        let host = host();
        for name in ["storage", "net1"] {
            give_alt_name(&host, "nica", name);
        }
        let pod = host.pod("a");
        pod.run(&format!("ip link add {taken} type bridge"));
        if taken != "storage" {
            give_alt_name(&pod, taken, "storage");
        }
        let before = host.state();
        attach(&host, &pod, "nica", "net1")
            .add()
            .refused(999, words);
        before.assert_same(&host.state());
        assert_eq!(pod.link_names(), [taken]);
        host.assert_nothing_left();
    }
}

#[test]
fn del_names_the_host_link_with_a_name_of_the_device() {
    for (command, words) in [
        (
            "add storage type bridge",
            &["the host has another link called \"storage\""][..],
        ),
        (
            "add net1 type bridge",
            &["the host has another link called \"net1\""],
        ),
        (
            "add third type bridge",
            &["the host has another link called \"nica\"", "\"third\""],
        ),
    ] {
        let host = host();
        for name in ["storage", "net1"] {
            give_alt_name(&host, "nica", name);
        }
        let pod = host.pod("a");
        let before = host.state();
        let call = attach(&host, &pod, "nica", "net1");
        call.add().result();
        host.run(&format!("ip link {command}"));
        let third = host.link_names();
        if command.contains("third") {
            give_alt_name(&host, "third", "nica");
        }
        for _ in 0..2 {
            call.del().refused(999, words);
            assert_eq!(
                (pod.link_names(), host.link_names()),
                (vec!["net1".to_owned()], third.clone())
            );
        }
        host.run(&format!("ip link del {}", third[0]));
        call.del().ok();
        before.assert_same(&host.state());
        host.assert_nothing_left();
    }
}

#[test]
fn an_alternative_name_of_another_host_link_does_not_block_del() {
    let host = host();
    host.run("ip link add uplink type bridge");
    let pod = host.pod("a");
    let call = attach(&host, &pod, "nica", "net1");
    call.add().result();
    for name in ["uplink", "harmless"] {
        give_alt_name(&pod, "net1", name);
    }
    call.del().ok();
    assert_eq!(
        (host.link_names(), alt_names(&host)),
        (
            vec!["nica".to_owned(), "uplink".to_owned()],
            json!(["harmless"])
        )
    );
    host.assert_nothing_left();
}
