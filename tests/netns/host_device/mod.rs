//! `host-device`: a host link that is in a container from ADD to DEL.

mod altnames;
mod identity;
mod keys;

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Service, Transport, Value, json, needs};
use std::fs;
use std::path::Path;
use std::rc::Rc;

/// Creates a host link `dev0`. Returns the machine at its other end, which has 10.8.0.1.
fn device(host: &Sandbox) -> Rc<Ns> {
    let far = host.outside("dev0", "192.0.2.9/32", "10.8.0.1/24");
    host.run("ip addr flush dev dev0");
    far
}

fn attach(host: &Sandbox, pod: &Ns) -> Call {
    host.call("host-device", pod, conf::host_device())
}

/// Asserts that `dev0` is on the host again, up, and with the attributes that it had `before`.
#[track_caller]
fn assert_back(host: &Sandbox, before: &Value) {
    let now = host.the_link("dev0");
    for key in ["address", "mtu", "ifalias"] {
        assert_eq!(now[key], before[key], "{key}");
    }
    assert!(
        now["flags"].as_array().unwrap().contains(&json!("UP")),
        "{now}"
    );
}

#[test]
fn a_device_is_moved_to_the_container_and_returned_unchanged() {
    let host = Sandbox::new();
    let far = device(&host);
    let before = host.the_link("dev0");
    let pod = host.pod("a");
    let call = attach(&host, &pod);
    let result = call.add().result();
    let expected = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": before["address"], "sandbox": "/run/netns/a"}],
        "ips": [{"address": "10.8.0.2/24", "gateway": "10.8.0.1", "interface": 0}],
        "routes": [{"dst": "0.0.0.0/0"}],
    });
    assert_eq!(result, expected);
    assert_eq!(host.link_names(), Vec::<String>::new());
    let link = pod.the_link("eth0");
    assert_eq!(
        (&link["address"], &link["ifalias"]),
        (&before["address"], &json!("dev0"))
    );
    assert_eq!(pod.seen_by(&far, "10.8.0.1").to_string(), "10.8.0.2");
    call.check(&result).ok();
    for _ in 0..2 {
        call.clone().prev(&result).del().ok();
        assert_back(&host, &before);
        assert_eq!(pod.link_names(), Vec::<String>::new());
        host.assert_nothing_left();
    }
}

#[test]
fn a_device_without_an_ipam_has_no_addresses() {
    let host = Sandbox::new();
    let far = device(&host);
    let before = host.the_link("dev0");
    let pod = host.pod("a");
    let call = attach(&host, &pod).with("ipam", json!({}));
    let result = call.add().result();
    assert_eq!((pod.addrs("eth0"), result.get("ips")), (Vec::new(), None));
    pod.run("ip addr add 10.8.0.7/24 dev eth0");
    assert!(far.can_ping("10.8.0.7"));
    call.check(&result).ok();
    call.prev(&result).del().ok();
    assert_back(&host, &before);
    host.assert_nothing_left();
}

#[test]
fn a_failed_add_returns_the_device_unchanged() {
    let host = Sandbox::new();
    device(&host);
    let pod = host.pod("a");
    let before = host.state().without_marks();
    let routes = json!([{"dst": "192.0.2.0/24", "gw": "203.0.113.1"}]);
    let ipam = json!({"type": "host-local", "subnet": "10.8.0.0/24", "routes": routes});
    attach(&host, &pod)
        .with("ipam", ipam)
        .add()
        .refused(999, &["192.0.2.0/24"]);
    before.assert_same(&host.state().without_marks());
    host.assert_nothing_left();
}

#[test]
fn del_fails_while_another_link_has_the_name_and_changes_nothing() {
    let host = Sandbox::new();
    let far = device(&host);
    let before = host.the_link("dev0");
    let pod = host.pod("a");
    let call = attach(&host, &pod);
    let result = call.add().result();
    host.run("ip link add dev0 type veth peer name other");
    for _ in 0..2 {
        call.clone()
            .prev(&result)
            .del()
            .refused(999, &["the host has another link called \"dev0\""]);
        assert!(pod.can_ping("10.8.0.1"));
        assert!(
            Path::new("/var/lib/cni/networks/net/10.8.0.2").exists(),
            "the address is still in use"
        );
    }
    host.run("ip link del dev0");
    call.prev(&result).del().ok();
    assert_back(&host, &before);
    host.assert_nothing_left();
    drop(far);
}

#[test]
fn the_container_may_have_a_link_with_the_name_of_the_device() {
    let host = Sandbox::new();
    device(&host);
    let before = host.the_link("dev0");
    let pod = host.pod("a");
    pod.run("ip link add dev0 type veth peer name other");
    let call = attach(&host, &pod);
    let result = call.add().result();
    call.check(&result).ok();
    call.prev(&result).del().ok();
    assert_back(&host, &before);
    assert_eq!(pod.link_names(), ["other", "dev0"]);
    host.assert_nothing_left();
}

#[test]
fn the_host_may_have_a_link_with_the_interface_name() {
    let host = Sandbox::new();
    device(&host);
    host.run("ip link add eth0 type veth peer name other");
    let before = host.the_link("dev0");
    let pod = host.pod("a");
    let call = attach(&host, &pod);
    let result = call.add().result();
    call.check(&result).ok();
    call.prev(&result).del().ok();
    assert_back(&host, &before);
    host.assert_nothing_left();
}

#[test]
fn a_device_changed_by_the_container_returns_to_the_host() {
    for commands in [
        &["ip link set eth0 alias other"][..],
        &["ip link set eth0 address c2:00:00:00:00:99"],
        &["ip link set eth0 down", "ip link set eth0 name other"],
        &[
            "ip link set eth0 down",
            "ip link set eth0 name other",
            "ip link set other alias other",
        ],
        &[
            "ip link set eth0 down",
            "ip link set eth0 name dev0",
            "ip link add eth0 type bridge",
        ],
    ] {
        let host = Sandbox::new();
        device(&host);
        let pod = host.pod("a");
        let call = attach(&host, &pod);
        let result = call.add().result();
        for command in commands {
            pod.run(command);
        }
        call.prev(&result).del().ok();
        assert_eq!(host.link_names(), ["dev0"], "{commands:?}");
        assert!(
            host.the_link("dev0")["flags"]
                .as_array()
                .unwrap()
                .contains(&json!("UP")),
            "{commands:?}"
        );
        host.assert_nothing_left();
    }
}

#[test]
fn without_a_record_alias_or_configuration_give_the_name() {
    for is_told in [true, false] {
        let host = Sandbox::new();
        device(&host);
        let pod = host.pod("a");
        let call = attach(&host, &pod).with("hwaddr", host.the_link("dev0")["address"].clone());
        let result = call.add().result();
        fs::remove_dir_all("/run/braid").unwrap();
        if !is_told {
            pod.run("ip link set eth0 alias /");
            call.clone()
                .with("device", "")
                .prev(&result)
                .del()
                .refused(999, &["failed to find original ifname", "eth0"]);
        }
        call.prev(&result).del().ok();
        assert_eq!(host.link_names(), ["dev0"]);
        host.assert_nothing_left();
    }
}

#[test]
fn a_device_gets_its_name_back_after_its_namespace_ended() {
    let host = Sandbox::new();
    device(&host);
    let before = host.the_link("dev0");
    let pod = host.pod("a");
    let call = attach(&host, &pod);
    let result = call.add().result();
    // When a network namespace ends, the kernel does not delete hardware links. It moves them to
    // the host like this command.
    let (process, thread) = (std::process::id(), nix::unistd::gettid());
    pod.run(&format!(
        "ip link set eth0 netns /proc/{process}/task/{thread}/ns/net name dev7"
    ));
    host.end(&pod);
    for _ in 0..2 {
        call.clone().prev(&result).del().ok();
        assert_back(&host, &before);
        host.assert_nothing_left();
    }
}

#[test]
fn del_without_a_namespace_finds_the_recorded_one() {
    let host = Sandbox::new();
    device(&host);
    let before = host.the_link("dev0");
    let pod = host.pod("a");
    let call = attach(&host, &pod);
    let result = call.add().result();
    call.prev(&result).env("CNI_NETNS", None).del().ok();
    assert_back(&host, &before);
    assert_eq!(pod.link_names(), Vec::<String>::new());
    host.assert_nothing_left();
}

#[test]
fn del_needs_no_device() {
    for gone in ["link", "namespace"] {
        let host = Sandbox::new();
        device(&host);
        let pod = host.pod("a");
        let call = attach(&host, &pod);
        let result = call.add().result();
        if gone == "link" {
            pod.run("ip link del eth0");
        } else {
            host.end(&pod);
        }
        for _ in 0..2 {
            call.clone().prev(&result).del().ok();
            host.assert_nothing_left();
        }
    }
}

#[test]
fn state_alias_and_attributes_changed_by_later_plugins_are_restored() {
    let host = Sandbox::new();
    device(&host);
    host.run("ip link set dev0 alias of.the.host");
    host.run("ip link set dev0 down");
    let before = host.the_link("dev0");
    let pod = host.pod("a");
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [conf::host_device(),
        {"type": "tuning", "mtu": 1300, "promisc": true, "mac": "c2:00:00:00:00:77", "txQLen": 7}]});
    let call = host.call("braid", &pod, list);
    let result = call.add().result();
    let link = pod.the_link("eth0");
    assert_eq!(
        (&link["mtu"], &link["address"], &link["txqlen"]),
        (&json!(1300), &json!("c2:00:00:00:00:77"), &json!(7))
    );
    assert_eq!(result["interfaces"][0]["mac"], "c2:00:00:00:00:77");
    call.check(&result).ok();
    call.prev(&result).del().ok();
    let now = host.the_link("dev0");
    for key in [
        "address",
        "mtu",
        "txqlen",
        "ifalias",
        "flags",
        "promiscuity",
    ] {
        assert_eq!(now[key], before[key], "{key}");
    }
    host.assert_nothing_left();
}

#[test]
fn each_implementation_returns_the_device_of_the_other() {
    needs!(Reference);
    for braid_adds in [true, false] {
        let host = Sandbox::new();
        device(&host);
        let pod = host.pod("a");
        let call = attach(&host, &pod);
        let (first, second) = if braid_adds {
            (call.clone(), call.reference())
        } else {
            (call.clone().reference(), call)
        };
        let result = first.add().result();
        if !braid_adds {
            second.check(&result).ok();
        }
        second.prev(&result).del().ok();
        assert_eq!(host.link_names(), ["dev0"]);
        assert_eq!(host.the_link("dev0").get("ifalias"), None);
        assert_eq!(pod.link_names(), Vec::<String>::new());
        assert!(!Path::new("/var/lib/cni/networks/net/10.8.0.2").exists());
    }
}

#[test]
fn check_reports_changes_of_the_device() {
    for (command, word) in [
        ("ip addr del 10.8.0.2/24 dev eth0", "10.8.0.2/24"),
        (
            "ip link set eth0 address c2:00:00:00:00:99",
            "c2:00:00:00:00:99",
        ),
        ("ip link del eth0", "eth0"),
        ("ip link set eth0 down", "eth0"),
    ] {
        let host = Sandbox::new();
        device(&host);
        let pod = host.pod("a");
        let call = attach(&host, &pod);
        let result = call.add().result();
        pod.run(command);
        call.check(&result).refused(999, &[word]);
    }
}

#[test]
fn gc_returns_the_devices_of_unlisted_containers() {
    let host = Sandbox::new();
    device(&host);
    let before = host.the_link("dev0");
    let pod = host.pod("a");
    let call = attach(&host, &pod);
    call.add().result();
    call.gc(&[("a", "eth0")]).ok();
    assert_eq!(pod.link_names(), ["eth0"]);
    call.gc(&[]).ok();
    assert_back(&host, &before);
    host.assert_nothing_left();
}

#[test]
fn status_succeeds_while_a_container_has_the_device() {
    let host = Sandbox::new();
    device(&host);
    let pod = host.pod("a");
    let call = attach(&host, &pod);
    call.status().ok();
    call.add().result();
    let answer = call.status();
    answer.ok();
    assert!(
        answer.stderr.contains("failed to find host device"),
        "{}",
        answer.stderr
    );
}

#[test]
fn ipv6_addresses_are_ready_when_add_returns() {
    let host = Sandbox::new();
    device(&host);
    let pod = host.pod("a");
    let ipam = json!({"type": "host-local", "subnet": "fd00:8::/64"});
    attach(&host, &pod).with("ipam", ipam).add().result();
    let infos = pod.json("ip -j -6 addr show dev eth0 scope global")[0]["addr_info"].clone();
    assert_ne!(infos[0]["tentative"], true, "{infos}");
    assert_eq!(infos[0]["local"], "fd00:8::2");
}

#[test]
fn a_host_port_reaches_a_container_behind_the_peer_of_the_device() {
    let host = Sandbox::new();
    let client = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    host.run("ip link add dev0 type veth peer name far0");
    host.run("ip addr add 10.8.0.1/24 dev far0");
    host.run("ip link set far0 up");
    host.set_sysctl("net/ipv4/ip_forward", "1");
    let pod = host.pod("a");
    let mapping = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid",
        "plugins": [conf::host_device(), {"type": "portmap", "capabilities": {"portMappings": true}}],
        "runtimeConfig": {"portMappings": [mapping]}});
    let call = host.call("braid", &pod, list);
    let result = call.add().result();
    let _service = Service::start(&pod, Transport::Tcp, 80);
    assert_eq!(
        client
            .ask(Transport::Tcp, "192.0.2.1:8080")
            .unwrap()
            .to_string(),
        "192.0.2.2"
    );
    call.check(&result).ok();
    call.prev(&result).del().ok();
    assert!(host.link("dev0").is_some());
    host.assert_nothing_left();
}
