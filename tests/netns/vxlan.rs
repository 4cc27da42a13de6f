//! `vxlan`: containers of two hosts in one layer 2 network.

use crate::conf;
use crate::gc_status::assert_gc_deletes_an_unlisted;
use braid_tests::feature::pretend;
use braid_tests::{Ns, Sandbox, Value, json, needs};
use std::fs;
use std::rc::Rc;

/// Size in bytes of the largest frame with an outer IPv4 packet: the underlay's MTU and the
/// Ethernet header.
const FULL_FRAME: u64 = 1500 + 14;

/// Connects the host's link `lan` (`10.3.0.253`, `fd00:3::253`) to the link `lan` of a second host
/// (`10.3.0.254`, `fd00:3::254`). Returns the second host.
fn underlay(host: &Sandbox) -> Rc<Ns> {
    let far = host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    host.run("ip addr add fd00:3::253/64 dev lan nodad");
    far.run("ip addr add fd00:3::254/64 dev lan nodad");
    far
}

/// Attaches a container of `host` and a container of `far`, each with one of `keys` in its
/// configuration. Returns both containers, the first result and the address of the second
/// container.
fn attach_both(host: &Sandbox, far: &Ns, keys: &[Value; 2]) -> (Rc<Ns>, Rc<Ns>, Value, String) {
    let (near_pod, far_pod) = (host.pod("a"), host.pod("b"));
    let calls = [(&near_pod, &keys[0]), (&far_pod, &keys[1])].map(|(pod, keys)| {
        let mut conf = conf::vxlan();
        conf.as_object_mut().unwrap().remove("remote");
        for (key, value) in keys.as_object().unwrap() {
            conf[key] = value.clone();
        }
        host.call("vxlan", pod, conf)
    });
    let result = calls[0].add().result();
    let other = far.enter(|| calls[1].add().result());
    calls[0].check(&result).ok();
    far.enter(|| calls[1].check(&other).ok());
    let address = other["ips"][0]["address"].as_str().unwrap();
    let address = address.split('/').next().unwrap().to_owned();
    (near_pod, far_pod, result, address)
}

/// Returns the settings of the container's VXLAN link, as `ip` prints them.
fn settings(pod: &Ns) -> Value {
    let info = pod.the_link("eth0")["linkinfo"].clone();
    assert_eq!(info["info_kind"], "vxlan");
    info["info_data"].clone()
}

/// Returns the number of packets and the number of bytes that a link has sent.
fn sent(ns: &Ns, link: &str) -> (u64, u64) {
    let all = ns.json(&format!("ip -j -s link show dev {link}"));
    let tx = &all[0]["stats64"]["tx"];
    let count = |key: &str| tx[key].as_u64().unwrap();
    (count("packets"), count("bytes"))
}

/// Returns the addresses of the remote hosts that the container's VXLAN has learned.
fn learned(pod: &Ns) -> Vec<Value> {
    let entries = pod.list("bridge -j fdb show dev eth0");
    let learned = entries.iter().filter(|entry| entry["state"] == "");
    learned.map(|entry| entry["dst"].clone()).collect()
}

#[test]
fn containers_of_two_hosts_exchange_full_packets_through_a_unicast_remote() {
    needs!(Vxlan);
    let host = Sandbox::new();
    let far = underlay(&host);
    let keys = [
        json!({"remote": "10.3.0.254"}),
        json!({"remote": "10.3.0.253"}),
    ];
    let (pod, far_pod, result, address) = attach_both(&host, &far, &keys);
    let expected = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": pod.the_link("eth0")["address"], "sandbox": "/run/netns/a"}],
        "ips": [{"address": "10.9.0.2/24", "gateway": "10.9.0.1", "interface": 0}],
    });
    assert_eq!(result, expected);
    let shown = settings(&pod);
    for (key, value) in [
        ("id", json!(5)),
        ("remote", json!("10.3.0.254")),
        ("port", json!(4789)),
        ("learning", json!(true)),
    ] {
        assert_eq!(shown[key], value, "{key} of {shown}");
    }
    assert_eq!(pod.the_link("eth0")["mtu"], 1450);
    assert!(pod.can_ping(&address));
    let before = [
        sent(&pod, "eth0"),
        sent(&far_pod, "eth0"),
        sent(host.host(), "lan"),
    ];
    // This is the largest echo that needs no fragments.
    pod.run(&format!(
        "ping -q -c 3 -i 0.2 -w 20 -M do -s 1422 {address}"
    ));
    let after = [
        sent(&pod, "eth0"),
        sent(&far_pod, "eth0"),
        sent(host.host(), "lan"),
    ];
    let grown = [0, 1, 2].map(|at| {
        let ((packets, bytes), (old_packets, old_bytes)): ((u64, u64), _) = (after[at], before[at]);
        (packets - old_packets, bytes - old_bytes)
    });
    for (packets, bytes) in grown {
        assert!(packets >= 3 && bytes >= 3 * 1450, "{grown:?}");
    }
    assert!(
        grown[2].1 >= 3 * FULL_FRAME,
        "the underlay carries them: {grown:?}"
    );
    assert_eq!(learned(&pod), ["10.3.0.254"]);
    let call = host.call("vxlan", &pod, conf::vxlan());
    for _ in 0..2 {
        call.clone().prev(&result).del().ok();
        assert_eq!(pod.link_names(), Vec::<String>::new());
    }
    let other = host.call("vxlan", &far_pod, conf::vxlan());
    far.enter(|| other.del().ok());
    assert_eq!(far_pod.link_names(), Vec::<String>::new());
    host.assert_nothing_left();
}

#[test]
fn containers_of_two_hosts_find_each_other_through_a_multicast_group() {
    needs!(Vxlan);
    for (group, mtu) in [("239.1.1.1", 1450), ("ff05::100", 1430)] {
        let host = Sandbox::new();
        let far = underlay(&host);
        let keys = json!({"group": group, "port": 8472, "ttl": 4});
        let (pod, far_pod, _, address) = attach_both(&host, &far, &[keys.clone(), keys]);
        let group_key = if mtu == 1450 { "group" } else { "group6" };
        let shown = settings(&pod);
        assert_eq!(
            (&shown[group_key], &shown["port"], &shown["ttl"]),
            (&json!(group), &json!(8472), &json!(4)),
            "{shown}"
        );
        assert_eq!(pod.the_link("eth0")["mtu"], mtu);
        assert!(
            host.run("ip maddr show dev lan").contains(group),
            "the host joined it"
        );
        assert!(pod.can_ping(&address));
        assert_eq!(
            (learned(&pod).len(), learned(&far_pod).len()),
            (1, 1),
            "answers are unicast"
        );
    }
}

#[test]
fn an_ipv6_underlay_and_all_keys_are_set() {
    needs!(Vxlan);
    let host = Sandbox::new();
    let far = underlay(&host);
    let near = json!({"remote": "fd00:3::254", "local": "fd00:3::253", "learning": false});
    let keys = [near, json!({"remote": "fd00:3::253"})];
    let (pod, _, _, address) = attach_both(&host, &far, &keys);
    let shown = settings(&pod);
    assert_eq!(
        (&shown["remote6"], &shown["local6"], &shown["learning"]),
        (&json!("fd00:3::254"), &json!("fd00:3::253"), &json!(false)),
        "{shown}"
    );
    assert_eq!(pod.the_link("eth0")["mtu"], 1430);
    assert!(pod.can_ping(&address));
    assert_eq!(learned(&pod), Vec::<Value>::new());
}

#[test]
fn without_an_underlay_link_the_hosts_routes_choose_it() {
    needs!(Vxlan);
    let host = Sandbox::new();
    let far = underlay(&host);
    let keys = [
        json!({"dev": "", "remote": "10.3.0.254", "mtu": 1400}),
        json!({"dev": "", "remote": "10.3.0.253", "mtu": 1400}),
    ];
    let (pod, _, _, address) = attach_both(&host, &far, &keys);
    assert_eq!(settings(&pod)["link"], Value::Null);
    assert_eq!(pod.the_link("eth0")["mtu"], 1400);
    assert!(pod.can_ping(&address));
}

#[test]
fn the_underlay_may_have_the_name_of_the_interface_or_an_alternative_one() {
    needs!(Vxlan);
    let host = Sandbox::new();
    host.outside("eth0", "10.3.0.253/24", "10.3.0.254/24");
    host.run("ip link property add dev eth0 altname a-long-name-of-the-underlay");
    let pod = host.pod("a");
    for dev in ["eth0", "a-long-name-of-the-underlay"] {
        let call = host.call("vxlan", &pod, conf::vxlan()).with("dev", dev);
        call.status().ok();
        let result = call.add().result();
        assert_eq!(pod.link_names(), ["eth0"]);
        call.check(&result).ok();
        call.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn an_identifier_in_use_at_the_port_is_refused_and_nothing_is_left() {
    needs!(Vxlan);
    let host = Sandbox::new();
    underlay(&host);
    let (first, second) = (host.pod("a"), host.pod("b"));
    host.call("vxlan", &first, conf::vxlan()).add().result();
    let before = host.state().without_marks();
    let call = host.call("vxlan", &second, conf::vxlan());
    call.add().refused(
        999,
        &[
            "type vxlan id 5",
            "EEXIST",
            "VXLAN device with the specified VNI already exists",
        ],
    );
    before.assert_same(&host.state().without_marks());
    assert_eq!(second.link_names(), Vec::<String>::new());
    for (key, value) in [("id", 6), ("port", 8472)] {
        let call = call.clone().with(key, value);
        call.add().result();
        call.del().ok();
    }
}

#[test]
fn an_invalid_vxlan_is_refused_before_an_address_is_reserved() {
    let host = Sandbox::new();
    underlay(&host);
    let pod = host.pod("a");
    pod.run("ip link add taken type veth peer name other");
    let before = host.state();
    let call = host.call("vxlan", &pod, conf::vxlan());
    for (key, value, words) in [
        ("id", json!(0), "\"id\": 0 is outside 1-16777215"),
        ("port", json!(0), "\"port\": 0 is outside 1-65535"),
        ("ttl", json!(0), "\"ttl\": 0 is outside 1-255"),
        ("remote", json!("x"), "\"remote\": \"x\" is not an IP"),
        ("remote", json!("239.1.1.1"), "that is \"group\""),
        ("group", json!("239.1.1.1"), "has one of them"),
        ("local", json!("fd00::1"), "not of the address family"),
        (
            "mtu",
            json!(1451),
            "\"mtu\": 1451 is outside 68-1450, the MTU of dev \"lan\" less 50",
        ),
    ] {
        call.clone().with(key, value).add().refused(7, &[words]);
    }
    call.clone()
        .with("dev", "none")
        .add()
        .refused(999, &["failed to lookup dev \"none\""]);
    call.ifname("taken")
        .add()
        .refused(999, &["interface \"taken\" already exists"]);
    before.assert_same(&host.state());
}

#[test]
fn check_reports_another_setting() {
    needs!(Vxlan);
    let host = Sandbox::new();
    underlay(&host);
    let pod = host.pod("a");
    let call = host
        .call("vxlan", &pod, conf::vxlan())
        .with("ipam", json!({}));
    let result = call.add().result();
    call.check(&result).ok();
    // The container can change this setting, although the underlay is in the host's namespace.
    pod.run("ip link set eth0 type vxlan nolearning");
    let words = ["has learning off, not on"];
    call.check(&result).refused(999, &words);
    fs::remove_dir_all("/run/braid").unwrap();
    call.check(&result).refused(999, &words);
    pod.run("ip link del eth0");
    pod.run("ip link add eth0 type vxlan id 6 remote 10.3.0.254 dstport 4789");
    pod.run("ip link set eth0 up");
    call.check(&result).refused(999, &["has id 6, not 5"]);
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn del_of_a_vxlan_needs_no_underlay_link_or_namespace() {
    needs!(Vxlan);
    for gone in ["underlay", "link", "namespace", "configuration"] {
        let host = Sandbox::new();
        underlay(&host);
        let pod = host.pod("a");
        let mut call = host.call("vxlan", &pod, conf::vxlan());
        let result = call.add().result();
        match gone {
            "underlay" => drop(host.run("ip link del lan")),
            "link" => drop(pod.run("ip link del eth0")),
            "namespace" => host.end(&pod),
            _ => {
                fs::remove_dir_all("/run/braid").unwrap();
                call = call.with("id", -1);
            }
        }
        for _ in 0..2 {
            call.clone().prev(&result).del().ok();
            host.assert_nothing_left();
        }
    }
}

#[test]
fn gc_deletes_an_unlisted_vxlan() {
    needs!(Vxlan);
    let host = Sandbox::new();
    underlay(&host);
    assert_gc_deletes_an_unlisted("vxlan", conf::vxlan(), &host);
}

#[test]
fn status_without_the_underlay_or_the_kernels_feature_is_50() {
    let host = Sandbox::new();
    underlay(&host);
    let pod = host.pod("a");
    let call = host.call("vxlan", &pod, conf::vxlan());
    pretend(&["vxlan"], &[]);
    call.status().ok();
    call.clone()
        .with("dev", "none")
        .status()
        .refused(50, &["failed to lookup dev \"none\""]);
    pretend(&[], &["vxlan"]);
    call.status()
        .refused(50, &["vxlan needs vxlan", "not here"]);
}
