//! Devices that return to the host under their original names, although the container has renamed
//! them.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json};

const DEVICES: [&str; 2] = ["nic0", "nic1"];
const LONG: &str = "enp129s0f0np0-of-the-storage-network";

/// Creates two devices on the host, sets both up, and returns them as `ip` shows them.
fn devices(host: &Sandbox) -> Vec<Value> {
    for name in DEVICES {
        host.run(&format!(
            "ip link add {name} up type veth peer name far-{name}"
        ));
    }
    DEVICES.map(|name| host.the_link(name)).to_vec()
}

/// Returns a call that moves `device` to the container and names it `ifname`.
pub(super) fn attach(host: &Sandbox, pod: &Ns, device: &str, ifname: &'static str) -> Call {
    let mut conf = conf::host_device();
    (conf["device"], conf["ipam"]) = (json!(device), json!({}));
    host.call("host-device", pod, conf)
        .env("CNI_IFNAME", ifname)
}

#[track_caller]
fn assert_back(host: &Sandbox, before: &[Value]) {
    for was in before {
        let now = host.the_link(was["ifname"].as_str().unwrap());
        for key in ["address", "ifalias", "altnames"] {
            assert_eq!(now[key], was[key], "{key} of {}", was["ifname"]);
        }
        assert!(
            now["flags"].as_array().unwrap().contains(&json!("UP")),
            "{now}"
        );
    }
}

/// Swaps the names of two links and also their aliases.
fn exchange(pod: &Ns, [one, other]: [&str; 2]) {
    let alias = |link: &str| {
        pod.the_link(link)["ifalias"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let aliases = [alias(one), alias(other)];
    for link in [one, other] {
        pod.run(&format!("ip link set {link} down"));
    }
    for (from, to) in [(one, "between"), (other, one), ("between", other)] {
        pod.run(&format!("ip link set {from} name {to}"));
    }
    for (link, alias) in [one, other]
        .iter()
        .zip(aliases)
        .filter(|(_, alias)| !alias.is_empty())
    {
        pod.run(&format!("ip link set {link} alias {alias}"));
    }
}

#[test]
fn devices_with_swapped_names_return_under_their_own_names() {
    for is_reversed in [false, true] {
        let host = Sandbox::new();
        let before = devices(&host);
        let pod = host.pod("a");
        let mut calls = [
            attach(&host, &pod, "nic0", "net1"),
            attach(&host, &pod, "nic1", "net2"),
        ];
        let results = calls.clone().map(|call| call.add().result());
        exchange(&pod, ["net1", "net2"]);
        let error = calls[0].check(&results[0]).error();
        assert!(error.msg.contains("net1"), "{error:?}");
        if is_reversed {
            calls.reverse();
        }
        for call in calls {
            call.del().ok();
        }
        assert_back(&host, &before);
        assert_eq!(pod.link_names(), [""; 0]);
        host.assert_nothing_left();
    }
}

#[test]
fn a_device_with_a_new_index_in_the_container_is_found_by_it() {
    let host = Sandbox::new();
    let before = devices(&host);
    let pod = host.pod("a");
    let index = before[0]["ifindex"].as_u64().unwrap();
    pod.run(&format!(
        "ip link add taken index {index} type veth peer name other"
    ));
    let call = attach(&host, &pod, "nic0", "net1");
    call.add().result();
    assert_ne!(pod.the_link("net1")["ifindex"], json!(index));
    exchange(&pod, ["net1", "taken"]);
    call.del().ok();
    assert_back(&host, &before);
    assert_eq!(pod.link_names(), ["other", "net1"]);
    host.assert_nothing_left();
}

#[test]
fn another_link_with_the_name_of_the_device_stays_in_the_container() {
    let host = Sandbox::new();
    let before = devices(&host);
    let pod = host.pod("a");
    let call = attach(&host, &pod, "nic0", "net1");
    call.add().result();
    for command in [
        "set net1 down",
        "set net1 name mine",
        "set mine alias x",
        "add net1 type veth peer name other",
    ] {
        pod.run(&format!("ip link {command}"));
    }
    call.del().ok();
    assert_back(&host, &before);
    assert_eq!(pod.link_names(), ["other", "net1"]);
    host.assert_nothing_left();
}

#[test]
fn a_device_is_found_by_any_name_and_returns_with_all_names() {
    let host = Sandbox::new();
    devices(&host);
    for name in ["storage", LONG] {
        host.run(&format!("ip link property add dev nic0 altname {name}"));
    }
    let before = [host.the_link("nic0")];
    for name in ["nic0", "storage", LONG] {
        let pod = host.pod(&format!("pod-{}", name.len()));
        let call = attach(&host, &pod, name, "net1");
        call.status().ok();
        let result = call.add().result();
        call.check(&result).ok();
        for _ in 0..2 {
            call.del().ok();
            assert_back(&host, &before);
        }
        host.assert_nothing_left();
        // DEL works from names alone, as if the record were lost.
        call.add().result();
        std::fs::remove_dir_all("/run/braid/attachments").unwrap();
        call.del().ok();
        host.run("ip link set nic0 up");
        assert_back(&host, &before);
        assert_eq!(pod.link_names(), [""; 0]);
    }
}

#[test]
fn del_fails_while_a_device_is_in_a_nested_namespace() {
    for has_other in [false, true] {
        let host = Sandbox::new();
        let before = devices(&host);
        let pod = host.pod("a");
        let nested = host.pod("nested");
        let call = attach(&host, &pod, "nic0", "net1");
        call.add().result();
        pod.run("ip link set net1 netns nested");
        if has_other {
            pod.run("ip link add net1 type bridge");
        }
        for _ in 0..2 {
            call.del()
                .refused(11, &["nic0", "moved it to another network namespace"]);
        }
        let (process, thread) = (std::process::id(), nix::unistd::gettid());
        nested.run(&format!(
            "ip link set net1 netns /proc/{process}/task/{thread}/ns/net name dev7"
        ));
        call.del().ok();
        assert_back(&host, &before);
        host.assert_nothing_left();
    }
}

#[test]
fn del_reports_a_device_that_cannot_be_found() {
    for gone in ["link", "namespace"] {
        let host = Sandbox::new();
        devices(&host);
        let pod = host.pod("a");
        let nested = host.pod("nested");
        let call = attach(&host, &pod, "nic0", "net1");
        call.add().result();
        pod.run("ip link set net1 netns nested");
        if gone == "link" {
            nested.run("ip link del net1");
        } else {
            host.end(&nested);
        }
        let answer = call.del();
        answer.ok();
        assert!(
            answer
                .stderr
                .contains("\"nic0\" is neither in the container nor on the host"),
            "{}",
            answer.stderr
        );
        host.assert_nothing_left();
        let again = call.del();
        again.ok();
        assert_eq!(again.stderr, "");
    }
}
