//! `macvlan`: modes, parents, attributes and addresses.

use crate::conf;
use braid_tests::{Ns, Sandbox, Value, binary, json};
use std::rc::Rc;

/// Creates a host link `lan`. Returns the machine at its other end, which has 10.3.0.254.
fn lan(host: &Sandbox) -> Rc<Ns> {
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24")
}

fn kind(ns: &Ns, link: &str) -> (Value, Value) {
    let info = ns.the_link(link)["linkinfo"].clone();
    (info["info_kind"].clone(), info["info_data"]["mode"].clone())
}

#[test]
fn a_container_is_on_its_parents_network_with_its_own_address() {
    let host = Sandbox::new();
    let far = lan(&host);
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, conf::macvlan());
    let result = call.add().result();
    assert_eq!(pod.addrs("eth0"), ["10.3.0.2/24"]);
    assert_eq!(pod.seen_by(&far, "10.3.0.254").to_string(), "10.3.0.2");
    let mac = &pod.the_link("eth0")["address"];
    let expected = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": mac, "sandbox": "/run/netns/a"}],
        "ips": [{"address": "10.3.0.2/24", "gateway": "10.3.0.1", "interface": 0}],
    });
    assert_eq!(result, expected);
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn a_parent_is_found_by_any_of_its_names() {
    const LONG: &str = "enp129s0f0np0-of-the-storage-network";
    let host = Sandbox::new();
    let far = lan(&host);
    for name in ["uplink", LONG] {
        host.run(&format!("ip link property add dev lan altname {name}"));
        let pod = host.pod(name);
        let mut conf = conf::macvlan();
        conf["master"] = json!(name);
        let call = host.call("macvlan", &pod, conf);
        if binary::reference().is_some() {
            call.clone().reference().add().result();
            call.clone().reference().del().ok();
        }
        call.status().ok();
        let result = call.add().result();
        assert!(far.can_ping(pod.addrs("eth0")[0].split('/').next().unwrap()));
        call.check(&result).ok();
        call.del().ok();
        host.assert_nothing_left();
    }
    let pod = host.pod("inside");
    pod.run("ip link add parent up type veth peer name other");
    pod.run(&format!("ip link property add dev parent altname {LONG}"));
    let mut conf = conf::macvlan();
    (conf["master"], conf["linkInContainer"]) = (json!(LONG), json!(true));
    let call = host.call("macvlan", &pod, conf);
    call.add().result();
    assert_eq!(pod.the_link("eth0")["link"], json!("parent"));
    call.del().ok();
}

#[test]
fn an_unknown_alternative_name_is_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let mut conf = conf::macvlan();
    for (name, code, words) in [
        ("x".repeat(127), 999, "no such link in host"),
        ("x".repeat(128), 7, "interface name is too long"),
        ("with blank".to_owned(), 7, "whitespace"),
    ] {
        conf["master"] = json!(name);
        host.call("macvlan", &pod, conf.clone())
            .add()
            .refused(code, &["master", words]);
        host.assert_nothing_left();
    }
}

#[test]
fn the_parent_may_have_the_name_of_the_interface() {
    assert_parent_of_same_name("macvlan");
}

pub(crate) fn assert_parent_of_same_name(plugin: &str) {
    let host = Sandbox::new();
    let far = host.outside("eth0", "10.3.0.253/24", "10.3.0.254/24");
    let pod = host.pod("a");
    let call = host
        .call(plugin, &pod, conf::macvlan())
        .with("type", plugin)
        .with("master", "eth0");
    let result = call.add().result();
    assert_eq!(pod.link_names(), ["eth0"]);
    assert_eq!(pod.seen_by(&far, "10.3.0.254").to_string(), "10.3.0.2");
    call.check(&result).ok();
    pod.run("ip link set eth0 down");
    // A call that is killed before it renames its link leaves this state.
    pod.run("ip link set eth0 name eth0~");
    call.del().ok();
    assert_eq!(pod.link_names(), Vec::<String>::new());
    host.assert_nothing_left();
}

#[test]
fn each_mode_is_set_in_the_kernel_and_an_unknown_one_is_refused() {
    for (mode, expected) in [
        ("", "bridge"),
        ("bridge", "bridge"),
        ("private", "private"),
        ("vepa", "vepa"),
        ("passthru", "passthru"),
    ] {
        let host = Sandbox::new();
        let far = lan(&host);
        let pod = host.pod("a");
        let call = host
            .call("macvlan", &pod, conf::macvlan())
            .with("mode", mode);
        let result = call.add().result();
        assert_eq!(kind(&pod, "eth0"), (json!("macvlan"), json!(expected)));
        assert!(pod.can_ping("10.3.0.254"), "{mode}");
        assert_eq!(
            result["interfaces"][0]["mac"],
            pod.the_link("eth0")["address"],
            "{mode}"
        );
        call.check(&result).ok();
        drop(far);
    }
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    let before = host.state();
    let call = host
        .call("macvlan", &pod, conf::macvlan())
        .with("mode", "source");
    call.add().refused(7, &["unknown macvlan mode: \"source\""]);
    before.assert_same(&host.state());
}

#[test]
fn children_in_bridge_mode_reach_each_other_and_in_private_mode_do_not() {
    let host = Sandbox::new();
    lan(&host);
    let pods = ["a", "b", "c", "d"].map(|name| host.pod(name));
    for (pod, mode) in pods.iter().zip(["bridge", "bridge", "private", "private"]) {
        host.call("macvlan", pod, conf::macvlan())
            .with("mode", mode)
            .add()
            .result();
    }
    assert!(pods[0].can_ping("10.3.0.3"));
    assert!(pods[2].cannot_ping("10.3.0.5"));
}

#[test]
fn mtu_is_bounded_by_the_parents() {
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, conf::macvlan());
    let before = host.state();
    call.clone().with("mtu", 1501).add().refused(
        7,
        &["\"mtu\": 1501 is outside 68-1500, the MTU of master \"lan\""],
    );
    call.clone()
        .with("mtu", -100)
        .add()
        .refused(7, &["\"mtu\": -100 is outside 68-1500"]);
    before.assert_same(&host.state());
    call.clone().with("mtu", 1400).add().result();
    assert_eq!(pod.the_link("eth0")["mtu"], 1400);
    call.del().ok();
    host.run("ip link set lan mtu 1200");
    call.with("mtu", 0).add().result();
    assert_eq!(pod.the_link("eth0")["mtu"], 1200, "inherited");
}

#[test]
fn runtime_config_then_cni_args_then_mac_set_the_hardware_address() {
    let host = Sandbox::new();
    lan(&host);
    let pods = ["a", "b", "c", "d"].map(|name| host.pod(name));
    let call = |at: usize| {
        host.call("macvlan", &pods[at], conf::macvlan())
            .with("ipam", json!({}))
    };
    let own = |at: usize| call(at).with("mac", "c2:11:22:33:44:55");
    let args = |at: usize| own(at).args("IgnoreUnknown=true;MAC=c2:11:22:33:44:66");
    own(0).add().result();
    args(1).add().result();
    args(2)
        .with("RuntimeConfig", json!({"mac": "c2:11:22:33:44:77"}))
        .add()
        .result();
    // `macvlan` ignores `args.cni`.
    own(3)
        .with("args", json!({"cni": {"mac": "c2:11:22:33:44:88"}}))
        .with("mac", "c2:11:22:33:44:99")
        .add()
        .result();
    let macs = pods.each_ref().map(|pod| {
        pod.the_link("eth0")["address"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    });
    assert_eq!(
        macs,
        [
            "c2:11:22:33:44:55",
            "c2:11:22:33:44:66",
            "c2:11:22:33:44:77",
            "c2:11:22:33:44:99"
        ]
    );
}

#[test]
fn without_a_master_the_link_of_the_default_route_is_the_parent() {
    for in_container in [false, true] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let ns: &Ns = if in_container { &pod } else { host.host() };
        let call = host
            .call("macvlan", &pod, conf::macvlan())
            .with("linkInContainer", in_container)
            .with("master", "");
        let before = host.state();
        call.add()
            .refused(999, &["no default route interface found"]);
        before.assert_same(&host.state());
        ns.run("ip link add other type veth peer name wire");
        ns.run("ip link add lan type veth peer name far");
        ns.run("ip link set lan up");
        ns.run("ip addr add 10.3.0.253/24 dev lan");
        ns.run("ip route add 0.0.0.0/0 via 10.3.0.254");
        let result = call.add().result();
        assert_eq!(kind(&pod, "eth0").0, "macvlan");
        let (child, parent) = (pod.the_link("eth0"), ns.the_link("lan"));
        // `ip` shows a parent in the same namespace by its name.
        assert!(
            child["link"] == "lan" || child["link_index"] == parent["ifindex"],
            "{in_container}: {child}"
        );
        call.check(&result).ok();
        call.del().ok();
    }
}

#[test]
fn a_master_in_the_container_is_not_searched_on_the_host() {
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    let call = host
        .call("macvlan", &pod, conf::macvlan())
        .with("linkInContainer", true);
    let before = host.state();
    call.add()
        .refused(999, &["failed to lookup master \"lan\""]);
    before.assert_same(&host.state());
}

#[test]
fn an_empty_ipam_means_no_addresses() {
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    let call = host
        .call("macvlan", &pod, conf::macvlan())
        .with("ipam", json!({}));
    let result = call.add().result();
    assert_eq!((pod.addrs("eth0"), result.get("ips")), (Vec::new(), None));
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn ipv6_addresses_are_ready_when_add_returns() {
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    let ipam = json!({"type": "host-local", "subnet": "fd00:3::/64"});
    host.call("macvlan", &pod, conf::macvlan())
        .with("ipam", ipam)
        .add()
        .result();
    let infos = pod.json("ip -j -6 addr show dev eth0 scope global")[0]["addr_info"].clone();
    assert_ne!(infos[0]["tentative"], true, "{infos}");
    assert_eq!(infos[0]["local"], "fd00:3::2");
}

#[test]
fn the_length_of_the_broadcast_queue_is_set() {
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    host.call("macvlan", &pod, conf::macvlan())
        .with("bcqueuelen", 2000)
        .add()
        .result();
    assert_eq!(
        pod.the_link("eth0")["linkinfo"]["info_data"]["bcqueuelen"],
        2000
    );
}

#[test]
fn del_needs_no_master() {
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, conf::macvlan());
    call.add().result();
    host.run("ip link del lan");
    call.del().ok();
    host.assert_nothing_left();
}
