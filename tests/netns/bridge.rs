//! `bridge`: each configuration key and its effect on a container.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json};

fn flags(ns: &Ns, link: &str) -> Vec<String> {
    let flags = ns.the_link(link)["flags"].clone();
    serde_json::from_value(flags).unwrap_or_default()
}

fn port(host: &Sandbox, result: &Value) -> Value {
    let name = result["interfaces"][1]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    host.the_link(&name)["linkinfo"]["info_slave_data"].clone()
}

fn mac(ns: &Ns, link: &str) -> String {
    ns.the_link(link)["address"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_container_gets_its_address_and_reaches_its_gateway() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("bridge", &pod, conf::bridge());
    let result = call.add().result();
    assert_eq!(pod.addrs("eth0"), ["10.1.0.2/24"]);
    assert_eq!(host.addrs("br0"), ["10.1.0.1/24"]);
    assert!(pod.can_ping("10.1.0.1"));
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn the_result_lists_bridge_port_and_container_with_their_addresses() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let result = host.call("bridge", &pod, conf::bridge()).add().result();
    let port = result["interfaces"][1]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let expected = json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "br0", "mac": mac(&host, "br0")},
            {"name": port, "mac": mac(&host, &port)},
            {"name": "eth0", "mac": mac(&pod, "eth0"), "sandbox": "/run/netns/a"},
        ],
        "ips": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 2}],
    });
    assert_eq!(result, expected);
    assert_eq!(host.the_link(&port)["master"], "br0");
}

#[test]
fn two_containers_reach_each_other() {
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    for pod in [&a, &b] {
        host.call("bridge", pod, conf::bridge()).add().result();
    }
    assert!(a.can_ping("10.1.0.3"));
    assert_eq!(b.seen_by(&a, "10.1.0.2").to_string(), "10.1.0.3");
}

#[test]
fn neighbours_learn_immediately_that_an_address_has_a_new_owner() {
    let host = Sandbox::new();
    let (asker, first, next) = (host.pod("a"), host.pod("b"), host.pod("c"));
    let call = |pod: &Ns, ip: &str| {
        let addresses = json!([{"address": format!("10.1.0.{ip}/24")}, {"address": format!("fd00:1::{ip}/64")}]);
        host.call("bridge", pod, conf::bridge_l2())
            .with("ipam", json!({"type": "static", "addresses": addresses}))
    };
    call(&asker, "2").add().result();
    let attached = call(&first, "5");
    attached.add().result();
    assert!(asker.can_ping("10.1.0.5") && asker.can_ping("fd00:1::5"));
    attached.del().ok();
    call(&next, "5").add().result();
    for address in ["10.1.0.5", "fd00:1::5"] {
        let neighbour = asker.list(&format!("ip -j neigh show to {address}"));
        assert_eq!(
            neighbour[0]["lladdr"],
            mac(&next, "eth0"),
            "{address}: {neighbour:?}"
        );
    }
}

#[test]
fn is_gateway_switches_forwarding_on_for_the_families_in_use() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    host.call("bridge", &pod, conf::bridge()).add().result();
    assert_eq!(host.sysctl("net/ipv4/ip_forward"), "1");
    assert_eq!(host.sysctl("net/ipv6/conf/all/forwarding"), "0");
}

#[test]
fn without_is_gateway_the_bridge_has_no_address_and_nothing_is_forwarded() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    host.call("bridge", &pod, conf::bridge())
        .with("isGateway", false)
        .add()
        .result();
    assert_eq!(host.addrs("br0"), Vec::<String>::new());
    assert_eq!(host.sysctl("net/ipv4/ip_forward"), "0");
    assert_eq!(pod.addrs("eth0"), ["10.1.0.2/24"]);
}

#[test]
fn is_default_gateway_adds_a_default_route_for_each_family() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let conf = host
        .call("bridge", &pod, conf::bridge())
        .with("ipam", conf::dual_stack());
    let result = conf
        .with("isGateway", false)
        .with("isDefaultGateway", true)
        .add()
        .result();
    let routes =
        json!([{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}, {"dst": "::/0", "gw": "fd00:1::1"}]);
    assert_eq!(result["routes"], routes);
    for (family, gateway) in [("-4", "10.1.0.1"), ("-6", "fd00:1::1")] {
        let default: Vec<Value> = pod
            .routes(family)
            .into_iter()
            .filter(|route| route["dst"] == "default")
            .collect();
        assert_eq!(default.len(), 1, "{default:?}");
        assert_eq!(
            (&default[0]["gateway"], &default[0]["prefsrc"]),
            (&json!(gateway), &Value::Null)
        );
    }
}

#[test]
fn a_default_route_of_the_ipam_is_not_doubled() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let ipam =
        json!({"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]});
    host.call("bridge", &pod, conf::bridge())
        .with("ipam", ipam)
        .with("isDefaultGateway", true)
        .add()
        .result();
    let default: Vec<Value> = pod
        .routes("-4")
        .into_iter()
        .filter(|route| route["dst"] == "default")
        .collect();
    assert_eq!(default.len(), 1, "{default:?}");
}

#[test]
fn a_container_has_its_ipv6_addresses_ready_immediately() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.detect_slowly();
    host.call("bridge", &pod, conf::bridge())
        .with("ipam", conf::dual_stack())
        .add()
        .result();
    assert!(
        !pod.run("ip -6 addr show dev eth0 scope global tentative")
            .contains("inet6")
    );
    pod.assert_asks_at_once("eth0");
    let infos = pod.json("ip -j -6 addr show dev eth0")[0]["addr_info"].clone();
    assert_eq!(
        infos.as_array().map(Vec::len),
        Some(2),
        "its own and the link-local one: {infos}"
    );
    assert_eq!(host.addrs("br0"), ["10.1.0.1/24", "fd00:1::1/64"]);
    assert!(pod.can_ping("fd00:1::1") && pod.can_ping("10.1.0.1"));
    assert_eq!(host.sysctl("net/ipv6/conf/all/forwarding"), "1");
}

#[test]
fn a_container_on_a_new_bridge_is_reachable_over_ipv6_immediately() {
    let host = Sandbox::new();
    let client = host.outside("client", "fd00:9::1/64", "fd00:9::2/64");
    client.run("ip -6 route add fd00:1::/64 via fd00:9::1");
    host.detect_slowly();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipam", conf::dual_stack());
    call.with("isDefaultGateway", true).add().result();
    host.assert_asks_at_once("br0");
    client.run("ping -q -c 1 -W 1 fd00:1::2");
}

#[test]
fn another_gateway_address_is_replaced_only_with_force_address() {
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    host.call("bridge", &a, conf::bridge()).add().result();
    let ipam = json!({"type": "host-local", "subnet": "10.9.0.0/24"});
    let other = host
        .call("bridge", &b, conf::bridge())
        .with("ipam", ipam)
        .with("name", "other");
    let before = host.state();
    other.add().refused(
        999,
        &[
            "br0",
            "already has an IP address different from 10.9.0.1/24",
        ],
    );
    before
        .without_marks()
        .assert_same(&host.state().without_marks());
    other.with("forceAddress", true).add().result();
    assert_eq!(host.addrs("br0"), ["10.9.0.1/24"]);
    assert!(b.can_ping("10.9.0.1"));
}

#[test]
fn overlapping_ipv6_gateways_conflict_and_disjoint_ones_coexist() {
    let host = Sandbox::new();
    let pods = ["a", "b", "c"].map(|name| host.pod(name));
    let call = |at: usize, subnet: &str| {
        let ipam = json!({"type": "host-local", "subnet": subnet});
        host.call("bridge", &pods[at], conf::bridge())
            .with("ipam", ipam)
            .with("name", format!("net{at}"))
    };
    call(0, "fd00:1::/64").add().result();
    call(1, "fd00:2::/64").add().result();
    assert_eq!(host.addrs("br0"), ["fd00:1::1/64", "fd00:2::1/64"]);
    let overlapping = call(2, "fd00:1::/60");
    overlapping.add().refused(
        999,
        &["already has an IP address different from fd00:1::1/60"],
    );
    overlapping.with("forceAddress", true).add().result();
    assert_eq!(host.addrs("br0"), ["fd00:1::1/60", "fd00:2::1/64"]);
}

#[test]
fn mtu_is_set_on_a_new_bridge_and_both_ends_of_the_veth() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let result = host
        .call("bridge", &pod, conf::bridge())
        .with("mtu", 1400)
        .add()
        .result();
    let port = result["interfaces"][1]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    for (ns, link) in [
        (host.host(), "br0"),
        (host.host(), port.as_str()),
        (pod.as_ref(), "eth0"),
    ] {
        assert_eq!(ns.the_link(link)["mtu"], 1400, "{link}");
    }
}

#[test]
fn hairpin_mode_is_a_flag_of_the_port() {
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let on = host
        .call("bridge", &a, conf::bridge())
        .with("hairpinMode", true)
        .add()
        .result();
    let off = host.call("bridge", &b, conf::bridge()).add().result();
    assert_eq!(
        (&port(&host, &on)["hairpin"], &port(&host, &off)["hairpin"]),
        (&json!(true), &json!(false))
    );
}

#[test]
fn promisc_mode_is_a_flag_of_the_bridge_and_excludes_hairpin_mode() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("promiscMode", true);
    let before = host.state();
    let sentence = "cannot set hairpin mode and promiscuous mode at the same time";
    call.clone()
        .with("hairpinMode", true)
        .add()
        .refused(7, &[sentence]);
    before.assert_same(&host.state());
    call.add().result();
    assert!(flags(&host, "br0").contains(&"PROMISC".to_owned()));
}

#[test]
fn isolated_ports_reach_the_gateway_and_not_each_other() {
    let host = Sandbox::new();
    let (a, b, open) = (host.pod("a"), host.pod("b"), host.pod("open"));
    for pod in [&a, &b] {
        let result = host
            .call("bridge", pod, conf::bridge())
            .with("portIsolation", true)
            .add()
            .result();
        assert_eq!(port(&host, &result)["isolated"], true);
    }
    host.call("bridge", &open, conf::bridge()).add().result();
    assert!(a.can_ping("10.1.0.1") && b.can_ping("10.1.0.1"));
    assert!(a.can_ping("10.1.0.4"), "a port that is not isolated");
    assert!(a.cannot_ping("10.1.0.3"));
}

#[test]
fn a_disabled_container_interface_stays_down_and_has_no_address() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge_l2())
        .with("disableContainerInterface", true);
    let result = call.add().result();
    assert!(!flags(&pod, "eth0").contains(&"UP".to_owned()));
    assert_eq!(
        pod.json("ip -j addr show dev eth0")[0]["addr_info"],
        json!([])
    );
    call.check(&result).ok();
    let with_ipam = call.with(
        "ipam",
        json!({"type": "host-local", "subnet": "10.1.0.0/24"}),
    );
    with_ipam.add().refused(
        7,
        &["cannot use IPAM when DisableContainerInterface flag is set"],
    );
}

#[test]
fn enabledad_enables_dad_and_waits_for_its_result() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipam", conf::dual_stack());
    call.with("enabledad", true).add().result();
    assert_eq!(pod.sysctl("net/ipv6/conf/eth0/accept_dad"), "1");
    assert_eq!(pod.sysctl("net/ipv6/conf/eth0/enhanced_dad"), "1");
    let tentative = pod.list("ip -j -6 addr show dev eth0 tentative");
    let infos = tentative
        .iter()
        .flat_map(|link| link["addr_info"].as_array().cloned().unwrap_or_default());
    assert_eq!(infos.filter(|info| info["scope"] == "global").count(), 0);
}

#[test]
fn a_duplicate_ipv6_address_fails_the_add_and_leaves_nothing() {
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let ipam = json!({"type": "static", "addresses": [{"address": "fd00:1::5/64"}]});
    let call = |pod: &Ns| {
        host.call("bridge", pod, conf::bridge_l2())
            .with("ipam", ipam.clone())
            .with("enabledad", true)
    };
    call(&a).add().result();
    let before = host.state();
    call(&b)
        .add()
        .refused(999, &["fd00:1::5/64", "used by another host"]);
    before.assert_same(&host.state());
}

#[test]
fn without_ipam_the_interface_is_up_and_has_no_ipv4_address() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("bridge", &pod, conf::bridge_l2());
    let result = call.add().result();
    assert_eq!(result.get("ips"), None);
    assert!(flags(&pod, "eth0").contains(&"UP".to_owned()));
    assert_eq!(pod.addrs("eth0"), Vec::<String>::new());
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn the_bridge_name_defaults_to_cni0() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let conf = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge"});
    host.call("bridge", &pod, conf).add().result();
    assert_eq!(host.the_link("cni0")["linkinfo"]["info_kind"], "bridge");
}

#[test]
fn an_existing_bridge_keeps_its_index_mtu_and_hardware_address() {
    let host = Sandbox::new();
    host.run("ip link add br0 address 0e:00:00:00:00:99 mtu 1300 type bridge");
    let pod = host.pod("a");
    let before = host.the_link("br0");
    let result = host
        .call("bridge", &pod, conf::bridge())
        .with("mtu", 1400)
        .add()
        .result();
    let after = host.the_link("br0");
    for key in ["ifindex", "address"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    assert_eq!(result["interfaces"][0]["mac"], "0e:00:00:00:00:99");
    assert!(flags(&host, "br0").contains(&"UP".to_owned()));
    assert!(pod.can_ping("10.1.0.1"));
}

#[test]
fn add_does_not_wait_for_spanning_tree() {
    let host = Sandbox::new();
    host.run("ip link add br0 type bridge stp_state 1");
    let pod = host.pod("a");
    let call = host.call("bridge", &pod, conf::bridge());
    let result = call.add().result();
    assert_ne!(host.the_link("br0")["operstate"], "UP");
    call.check(&result).ok();
}

#[test]
fn a_link_of_another_kind_is_refused_and_left_alone() {
    let host = Sandbox::new();
    host.run("ip link add br0 type veth peer name br1");
    let pod = host.pod("a");
    let before = host.state();
    host.call("bridge", &pod, conf::bridge())
        .add()
        .refused(999, &["\"br0\" already exists but is not a bridge"]);
    before.assert_same(&host.state());
}

#[test]
fn the_bridge_keeps_its_hardware_address_when_ports_change() {
    let host = Sandbox::new();
    let pods: Vec<_> = (0..8).map(|at| host.pod(&format!("p{at}"))).collect();
    let calls: Vec<Call> = pods
        .iter()
        .map(|pod| host.call("bridge", pod, conf::bridge()))
        .collect();
    calls[0].add().result();
    let first = mac(&host, "br0");
    for call in &calls[1..] {
        call.add().result();
        assert_eq!(mac(&host, "br0"), first);
    }
    for call in &calls {
        call.del().ok();
        assert_eq!(mac(&host, "br0"), first);
    }
}

#[test]
fn a_bridge_without_a_set_address_gets_a_permanent_one() {
    for is_gateway in [true, false] {
        for is_up in [true, false] {
            for had_port in [true, false] {
                let host = Sandbox::new();
                host.run("ip link add br0 type bridge");
                if is_up {
                    host.run("ip link set br0 up");
                }
                if had_port {
                    host.run("ip link add first type veth peer name other");
                    host.run("ip link set first master br0");
                    host.run("ip link del first");
                    assert_eq!(mac(&host, "br0"), "00:00:00:00:00:00");
                }
                let pods = ["a", "b"].map(|name| host.pod(name));
                let calls = pods.each_ref().map(|pod| {
                    host.call("bridge", pod, conf::bridge())
                        .with("isGateway", is_gateway)
                });
                let results = calls.each_ref().map(|call| call.add().result());
                let address = mac(&host, "br0");
                assert_ne!(address, "00:00:00:00:00:00");
                for (call, result) in calls.iter().zip(&results) {
                    assert_eq!(
                        result["interfaces"][0]["mac"], address,
                        "gateway {is_gateway}, up {is_up}, {had_port}"
                    );
                    call.check(result).ok();
                }
                for call in &calls {
                    call.del().ok();
                }
                assert_eq!(
                    mac(&host, "br0"),
                    address,
                    "gateway {is_gateway}, up {is_up}, had a port {had_port}"
                );
            }
        }
    }
}

#[test]
fn a_bridge_keeps_an_address_that_it_has_from_a_port() {
    let host = Sandbox::new();
    host.run("ip link add br0 type bridge");
    host.run("ip link add first address fe:ff:ff:ff:ff:ff type veth peer name other");
    host.run("ip link set first master br0");
    host.run("ip link set br0 up");
    let pod = host.pod("a");
    let result = host.call("bridge", &pod, conf::bridge_l2()).add().result();
    assert_eq!(mac(&host, "br0"), "fe:ff:ff:ff:ff:ff");
    assert_eq!(result["interfaces"][0]["mac"], "fe:ff:ff:ff:ff:ff");
    host.run("ip link del first");
}

#[test]
fn runtime_config_then_args_then_cni_args_set_the_hardware_address() {
    let host = Sandbox::new();
    let pods = ["a", "b", "c"].map(|name| host.pod(name));
    let call = |at: usize| {
        let call = host.call("bridge", &pods[at], conf::bridge_l2());
        call.args("IgnoreUnknown=1;MAC=c2:11:22:33:44:55;K8S_POD_NAME=web")
    };
    let cni = json!({"cni": {"mac": "c2:11:22:33:44:66"}});
    call(0).add().result();
    call(1).with("args", cni.clone()).add().result();
    // Keys match in any case, as in Go.
    let runtime = json!({"mac": "C2-11-22-33-44-77"});
    let result = call(2)
        .with("args", cni)
        .with("RuntimeConfig", runtime)
        .add()
        .result();
    let macs = pods.each_ref().map(|pod| mac(pod, "eth0"));
    assert_eq!(
        macs,
        [
            "c2:11:22:33:44:55",
            "c2:11:22:33:44:66",
            "c2:11:22:33:44:77"
        ]
    );
    assert_eq!(result["interfaces"][2]["mac"], "c2:11:22:33:44:77");
}
