//! `netkit`, as a plugin type and as the `device` of `bridge` and `ptp`.

use crate::conf;
use braid_tests::feature::pretend;
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};
use std::fs;

/// Python script for netkit settings, which older versions of `ip` do not know. `show` prints
/// `primary`, policy, peer policy and mode as the kernel's numbers
/// (`include/uapi/linux/if_link.h`). `drop` sets the policy of a link to drop, and prints the
/// kernel's errno.
const SETTINGS: &str = r#"
import socket, struct, sys
def attribute(kind, value):
    return (struct.pack("HH", 4 + len(value), kind) + value).ljust(4 + len(value) + 3 & ~3, b"\0")
def attributes(data):
    at, found = 0, {}
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("HH", data, at)
        found[kind & 0x3fff] = data[at + 4:at + size]
        at += size + 3 & ~3
    return found
def ask(kind, flags, index, more):
    asking = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    body = struct.pack("BBHiII", 0, 0, 0, index, 0, 0) + more
    asking.send(struct.pack("IHHII", 16 + len(body), kind, 1 | flags, 1, 0) + body)
    return asking.recv(65536)
index = socket.if_nametoindex(sys.argv[2])
if sys.argv[1] == "show":
    data = attributes(attributes(attributes(ask(18, 0, index, b"")[32:])[18])[2])
    print([int.from_bytes(data[of], sys.byteorder) for of in (2, 3, 4, 5)])
else:
    drop = attribute(2, attribute(3, struct.pack("I", 2)))
    print(-struct.unpack_from("i", ask(16, 4, index, attribute(18, attribute(1, b"netkit") + drop)), 16)[0])
"#;

fn settings(ns: &Ns, verb: &str, link: &str) -> String {
    fs::write("/run/settings.py", SETTINGS).unwrap();
    ns.run(&format!("python3 /run/settings.py {verb} {link}"))
        .trim()
        .to_owned()
}

/// Returns the name of the netkit's end on the node. In a result it precedes the container's
/// interface.
fn port(result: &Value) -> String {
    let interfaces = result["interfaces"].as_array().unwrap();
    let own = interfaces
        .iter()
        .position(|interface| interface["name"] == "eth0")
        .unwrap();
    interfaces[own - 1]["name"].as_str().unwrap().to_owned()
}

fn has_flag(link: &Value, flag: &str) -> bool {
    link["flags"].as_array().unwrap().contains(&json!(flag))
}

/// Returns a call for each plugin type that can create a netkit, in each mode that the type
/// accepts.
fn all(host: &Sandbox, pod: &Ns) -> Vec<Call> {
    let of = |conf: Value, mode: &str| {
        let plugin = conf["type"].as_str().unwrap().to_owned();
        host.call(&plugin, pod, conf)
            .with("device", "netkit")
            .with("mode", mode)
            .with("ipam", conf::dual_stack())
    };
    vec![
        of(conf::netkit(), "l3"),
        of(conf::netkit(), "l2"),
        of(conf::ptp(), "l3"),
        of(conf::ptp(), "l2"),
        of(conf::bridge(), "l2"),
    ]
}

#[test]
fn container_and_node_reach_each_other_by_netkit_in_each_mode_and_family() {
    needs!(Netkit);
    for at in 0..5 {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = all(&host, &pod).remove(at);
        let result = call.add().result();
        assert_eq!(pod.addrs("eth0"), ["10.1.0.2/24", "fd00:1::2/64"]);
        assert!(
            pod.can_ping("10.1.0.1") && pod.can_ping("fd00:1::1"),
            "{result}"
        );
        assert!(
            host.can_ping("10.1.0.2") && host.can_ping("fd00:1::2"),
            "{result}"
        );
        call.check(&result).ok();
        call.prev(&result).del().ok();
        host.assert_nothing_left();
        assert_eq!(pod.link_names(), Vec::<String>::new());
    }
}

#[test]
fn two_containers_with_netkits_reach_each_other() {
    needs!(Netkit);
    for at in 0..5 {
        let host = Sandbox::new();
        let (a, b) = (host.pod("a"), host.pod("b"));
        for pod in [&a, &b] {
            all(&host, pod).remove(at).with("mtu", 1400).add().result();
            assert_eq!(pod.the_link("eth0")["mtu"], 1400);
        }
        assert_eq!(b.seen_by(&a, "10.1.0.2").to_string(), "10.1.0.3");
        assert_eq!(b.seen_by(&a, "fd00:1::2").to_string(), "fd00:1::3");
    }
}

#[test]
fn only_l2_netkits_have_hardware_addresses() {
    needs!(Netkit);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("netkit", &pod, conf::netkit());
    let result = call.add().result();
    let name = port(&result);
    let expected = json!([{"name": name}, {"name": "eth0", "sandbox": "/run/netns/a"}]);
    assert_eq!(result["interfaces"], expected);
    for link in [host.the_link(&name), pod.the_link("eth0")] {
        assert_eq!(
            (&link["linkinfo"]["info_kind"], &link["address"]),
            (&json!("netkit"), &json!("00:00:00:00:00:00"))
        );
        assert!(has_flag(&link, "NOARP"), "{link}");
    }
    call.del().ok();
    let call = call
        .with("mode", "l2")
        .with("runtimeConfig", json!({"mac": "c2:11:22:33:44:55"}));
    let result = call.add().result();
    assert_eq!(result["interfaces"][1]["mac"], "c2:11:22:33:44:55");
    for (at, link) in [host.the_link(&name), pod.the_link("eth0")]
        .iter()
        .enumerate()
    {
        assert_eq!(
            (&link["linkinfo"]["info_kind"], &link["address"]),
            (&json!("netkit"), &result["interfaces"][at]["mac"])
        );
        assert!(!has_flag(link, "NOARP"), "{link}");
    }
}

#[test]
fn only_the_node_can_change_the_policy_of_a_netkit() {
    needs!(Netkit);
    for (mode, number) in [("l2", 0), ("l3", 1)] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let result = host
            .call("netkit", &pod, conf::netkit())
            .with("mode", mode)
            .add()
            .result();
        let port = port(&result);
        assert_eq!(
            settings(&host, "show", &port),
            format!("[1, 0, 0, {number}]")
        );
        assert_eq!(
            settings(&pod, "show", "eth0"),
            format!("[0, 0, 0, {number}]")
        );
        // 13 is EACCES.
        assert_eq!(settings(&pod, "drop", "eth0"), "13");
        assert!(pod.can_ping("10.2.0.1"));
        assert_eq!(settings(&host, "drop", &port), "0");
        assert!(pod.cannot_ping("10.2.0.1"));
    }
}

#[test]
fn both_ends_of_a_netkit_are_operationally_up_when_add_returns() {
    needs!(Netkit);
    let host = Sandbox::new();
    for at in (0..5).cycle().take(20) {
        let pod = host.pod("a");
        let call = all(&host, &pod).remove(at);
        let result = call.add().result();
        for (ns, link) in [(host.host(), port(&result)), (&pod, "eth0".to_owned())] {
            let shown = ns.the_link(&link);
            assert!(
                shown["operstate"] == "UP" || at < 4 && link == "eth0",
                "{shown}"
            );
        }
        call.del().ok();
        host.end(&pod);
        fs::remove_file(pod.path()).unwrap();
    }
}

#[test]
fn without_an_ipam_a_netkit_has_no_addresses() {
    needs!(Netkit);
    for mode in ["l2", "l3"] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = host
            .call("netkit", &pod, conf::netkit())
            .with("mode", mode)
            .with("ipam", json!({}));
        let result = call.add().result();
        assert_eq!(
            (&result["ips"], &result["routes"]),
            (&Value::Null, &Value::Null)
        );
        let port = port(&result);
        assert!(has_flag(&host.the_link(&port), "UP") && has_flag(&pod.the_link("eth0"), "UP"));
        assert_eq!(host.sysctl("net/ipv4/ip_forward"), "0");
        pod.run("ip addr add 10.2.0.2/24 dev eth0");
        host.run(&format!("ip addr add 10.2.0.1/24 dev {port}"));
        assert!(
            pod.can_ping("10.2.0.1") && host.can_ping("10.2.0.2"),
            "{mode}"
        );
        call.check(&result).ok();
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_netkit_as_bridge_port_supports_all_bridge_keys() {
    needs!(Netkit);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("device", "netkit");
    let call = call
        .with("hairpinMode", true)
        .with("portIsolation", true)
        .with("macspoofchk", true);
    let call = call
        .with("ipMasq", true)
        .with("runtimeConfig", json!({"mac": "c2:11:22:33:44:55"}));
    let result = call.add().result();
    let link = host.the_link(&port(&result));
    let of_port = &link["linkinfo"]["info_slave_data"];
    assert_eq!(
        (&link["master"], &of_port["hairpin"], &of_port["isolated"]),
        (&json!("br0"), &json!(true), &json!(true))
    );
    assert!(pod.can_ping("10.1.0.1"));
    // The bridge port accepts only the container's assigned hardware address.
    pod.run("ip link set eth0 address c2:11:22:33:44:66");
    assert!(pod.cannot_ping("10.1.0.1"));
    pod.run("ip link set eth0 address c2:11:22:33:44:55");
    assert!(pod.can_ping("10.1.0.1"));
    call.check(&result).ok();
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_masqueraded_netkit_is_seen_as_its_node() {
    needs!(Netkit);
    let host = Sandbox::new();
    let outside = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    let pod = host.pod("a");
    let ipam =
        json!({"type": "host-local", "subnet": "10.2.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]});
    host.call("netkit", &pod, conf::netkit())
        .with("ipMasq", true)
        .with("ipam", ipam)
        .add()
        .result();
    assert_eq!(pod.seen_by(&outside, "192.0.2.2").to_string(), "192.0.2.1");
}

/// A word of an error of CHECK, and the change on the node or in the container that causes it.
type Harm = (&'static str, fn(&Sandbox, &Ns, &str));

#[test]
fn check_reports_changes_of_a_netkit() {
    needs!(Netkit);
    let harms: [Harm; 4] = [
        ("is not operationally up", |host, _, port| {
            drop(host.run(&format!("ip link set {port} down")));
        }),
        ("does not exist", |_, pod, _| {
            drop(pod.run("ip link del eth0"));
        }),
        ("is of kind \"veth\"", |_, pod, _| {
            pod.run("ip link del eth0");
            pod.run("ip link add eth0 type veth peer name far");
        }),
        ("has mode \"l2\", not l3", |host, pod, port| {
            let own = host.call("netkit", pod, conf::netkit()).with("mode", "l2");
            pod.run("ip link del eth0");
            fs::rename("/run/braid/attachments/a", "/run/kept").unwrap();
            own.with("ipam", json!({})).add().result();
            fs::remove_dir_all("/run/braid/attachments/a").unwrap();
            fs::rename("/run/kept", "/run/braid/attachments/a").unwrap();
            assert!(host.link(port).is_some());
        }),
    ];
    for (words, harm) in harms {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = host.call("netkit", &pod, conf::netkit());
        let result = call.add().result();
        call.check(&result).ok();
        harm(&host, &pod, &port(&result));
        call.check(&result).refused(999, &[words]);
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn gc_deletes_an_unlisted_netkit_with_and_without_its_record() {
    needs!(Netkit);
    for is_lost in [false, true] {
        let host = Sandbox::new();
        let calls = ["a", "b"].map(|name| {
            let pod = host.pod(name);
            let call = host
                .call("netkit", &pod, conf::netkit())
                .with("ipMasq", true);
            (call.add().result(), call, pod)
        });
        if is_lost {
            fs::remove_dir_all("/run/braid").unwrap();
        }
        calls[0].1.gc(&[("b", "eth0")]).ok();
        assert_eq!(calls[0].2.link_names(), Vec::<String>::new());
        assert!(calls[1].2.can_ping("10.2.0.1"));
        assert!(
            host.leftovers().iter().all(|left| !left.contains("net a")),
            "{:?}",
            host.leftovers()
        );
        calls[1].1.clone().prev(&calls[1].0).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn an_l3_netkit_is_refused_where_a_hardware_address_is_needed() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    pretend(&["netkit", "netkit l2"], &[]);
    let before = host.state();
    let bridge = host
        .call("bridge", &pod, conf::bridge())
        .with("device", "netkit")
        .with("mode", "l3");
    bridge.add().refused(7, &["l3", "port of a bridge", "l2"]);
    let mac = "c2:11:22:33:44:55";
    let call = || host.call("netkit", &pod, conf::netkit());
    call()
        .with("runtimeConfig", json!({"mac": mac}))
        .add()
        .refused(7, &["l3", mac]);
    call()
        .with("args", json!({"cni": {"mac": mac}}))
        .add()
        .refused(7, &["l3", mac]);
    call()
        .args(&format!("MAC={mac}"))
        .add()
        .refused(7, &["l3", mac]);
    call().with("mac", mac).add().refused(7, &["l3", mac]);
    // braid has reserved no address yet, so nothing has to be released.
    let tuning = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid",
        "plugins": [{"type": "netkit"}, {"type": "tuning", "mac": mac}]});
    host.call("braid", &pod, tuning)
        .add()
        .refused(7, &["l3", mac, "eth0"]);
    before.assert_same(&host.state());
}

#[test]
fn an_unknown_device_or_netkit_mode_is_refused_by_name() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    host.call("netkit", &pod, conf::netkit())
        .with("mode", "l3s")
        .add()
        .refused(7, &["netkit mode", "l3s"]);
    for conf in [conf::bridge(), conf::ptp()] {
        let plugin = conf["type"].as_str().unwrap().to_owned();
        let call = host.call(&plugin, &pod, conf);
        call.clone()
            .with("device", "tap")
            .add()
            .refused(7, &["device", "tap"]);
        call.with("device", "netkit")
            .with("mode", "L2")
            .add()
            .refused(7, &["netkit mode", "L2"]);
    }
    before.assert_same(&host.state());
}

#[test]
fn a_kernel_without_netkit_is_refused_before_an_address_is_reserved() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    for (lack, call) in ["netkit", "netkit l2", "netkit", "netkit l2", "netkit l2"]
        .into_iter()
        .zip(all(&host, &pod))
    {
        pretend(&[], &[lack]);
        let before = host.state();
        call.add().refused(
            999,
            &[
                &format!("this kernel lacks {lack}: not here"),
                "braid doctor",
            ],
        );
        before.assert_same(&host.state());
        call.status().refused(50, &[lack, "not here"]);
        call.del().ok();
    }
}

#[test]
fn doctor_and_status_report_netkit_support() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let is_missing = braid_tests::Feature::Netkit.missing().is_some();
    for call in all(&host, &pod) {
        let answer = call.status();
        if is_missing {
            answer.refused(50, &["netkit", "EOPNOTSUPP"]);
        } else {
            answer.ok();
        }
    }
    let checks = host.json(&format!(
        "{} doctor -o json",
        braid_tests::binary::braid().display()
    ));
    let of = |name: &str| {
        checks
            .as_array()
            .unwrap()
            .iter()
            .find(|check| check["name"] == name)
            .unwrap()["state"]
            .clone()
    };
    let expected = if is_missing { "missing" } else { "ok" };
    assert_eq!(
        [of("netkit"), of("netkit l2")],
        [json!(expected), json!(expected)]
    );
}
