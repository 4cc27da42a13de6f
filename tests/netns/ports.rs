//! Filters of bridge ports: hardware addresses (`macspoofchk`) and VLANs.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};
use std::rc::Rc;

/// Attaches the containers `a` and `b` to a bridge. `a` may only send with its assigned hardware
/// address. Returns both containers, and the call and result of `a`.
fn attach_two(host: &Sandbox) -> (Rc<Ns>, Rc<Ns>, Call, Value) {
    let (a, b) = (host.pod("a"), host.pod("b"));
    let call = host
        .call("bridge", &a, conf::bridge())
        .with("macspoofchk", true);
    let result = call.add().result();
    host.call("bridge", &b, conf::bridge()).add().result();
    (a, b, call, result)
}

#[test]
fn macspoofchk_allows_only_the_assigned_hardware_address() {
    let host = Sandbox::new();
    let (a, b, call, result) = attach_two(&host);
    assert!(a.can_ping("10.1.0.3"), "with its own");
    call.check(&result).ok();
    a.run("ip link set eth0 address c2:00:00:00:00:01");
    assert!(a.cannot_ping("10.1.0.3"), "with another one");
    let own = result["interfaces"][2]["mac"].as_str().unwrap_or_default();
    a.run(&format!("ip link set eth0 address {own}"));
    assert!(a.can_ping("10.1.0.3"), "with its own again");
    assert!(b.can_ping("10.1.0.2"));
}

#[test]
fn without_macspoofchk_a_container_may_change_its_hardware_address() {
    let host = Sandbox::new();
    let (_a, b, ..) = attach_two(&host);
    b.run("ip link set eth0 address c2:00:00:00:00:02");
    assert!(b.can_ping("10.1.0.2"));
}

#[test]
fn macspoofchk_rules_are_deleted_with_and_without_a_record() {
    for lose_record in [false, true] {
        let host = Sandbox::new();
        let (.., call, _) = attach_two(&host);
        assert!(
            host.leftovers()
                .iter()
                .any(|left| left.contains("bridge braid"))
        );
        if lose_record {
            std::fs::remove_dir_all("/run/braid").unwrap();
        }
        call.del().ok();
        let left: Vec<String> = host
            .leftovers()
            .into_iter()
            .filter(|left| left.contains("bridge braid"))
            .collect();
        assert_eq!(left, Vec::<String>::new());
    }
}

#[test]
fn check_reports_missing_macspoofchk_rules() {
    let host = Sandbox::new();
    let (.., call, result) = attach_two(&host);
    host.run("nft flush set bridge braid allowed");
    let port = result["interfaces"][1]["name"].as_str().unwrap_or_default();
    call.check(&result)
        .refused(999, &[port, "is not restricted to"]);
}

fn vlans(ns: &Ns, port: &str) -> Vec<(u64, Vec<String>)> {
    let shown = ns.list(&format!("bridge -j vlan show dev {port}"));
    let vlans = shown
        .iter()
        .flat_map(|port| port["vlans"].as_array().cloned().unwrap_or_default());
    let flags = |vlan: &Value| serde_json::from_value(vlan["flags"].clone()).unwrap_or_default();
    vlans
        .map(|vlan| (vlan["vlan"].as_u64().unwrap_or_default(), flags(&vlan)))
        .collect()
}

fn port_vlans(host: &Sandbox, result: &Value) -> Vec<(u64, Vec<String>)> {
    vlans(
        host,
        result["interfaces"][1]["name"].as_str().unwrap_or_default(),
    )
}

fn untagged(id: u64) -> (u64, Vec<String>) {
    (id, vec!["PVID".to_owned(), "Egress Untagged".to_owned()])
}

#[test]
fn a_port_of_a_vlan_carries_only_that_vlan() {
    needs!(VlanFiltering);
    let host = Sandbox::new();
    let pods = ["a", "b", "c"].map(|name| host.pod(name));
    let add = |at: usize, vlan: u16| {
        host.call("bridge", &pods[at], conf::bridge())
            .with("isGateway", false)
            .with("vlan", vlan)
            .add()
            .result()
    };
    let result = add(0, 100);
    assert_eq!(port_vlans(&host, &result), [untagged(100)]);
    add(1, 100);
    add(2, 200);
    assert!(pods[0].can_ping("10.1.0.3"));
    assert!(pods[0].cannot_ping("10.1.0.4"));
}

#[test]
fn preserve_default_vlan_keeps_vlan_1_on_the_port() {
    needs!(VlanFiltering);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge_l2())
        .with("vlan", 100)
        .with("preserveDefaultVlan", true);
    let ids: Vec<u64> = port_vlans(&host, &call.add().result())
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert_eq!(ids, [1, 100]);
}

#[test]
fn a_trunk_carries_its_vlans_tagged_and_vlan_1_untagged() {
    needs!(VlanFiltering);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let trunk = json!([{"minID": 10, "maxID": 12}, {"id": 12}, {"id": 1}, {"id": 20}]);
    let call = host
        .call("bridge", &pod, conf::bridge_l2())
        .with("vlanTrunk", trunk);
    let result = call.add().result();
    let tagged = |id| (id, Vec::new());
    assert_eq!(
        port_vlans(&host, &result),
        [untagged(1), tagged(10), tagged(11), tagged(12), tagged(20)]
    );
    call.check(&result).ok();
    let port = result["interfaces"][1]["name"].as_str().unwrap_or_default();
    host.run(&format!("bridge vlan del dev {port} vid 11"));
    call.check(&result).refused(999, &["VLAN 11 is missing"]);
}

#[test]
fn the_gateway_of_a_vlan_is_a_separate_interface() {
    needs!(VlanFiltering);
    let host = Sandbox::new();
    host.detect_slowly();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let call = |pod: &Ns| {
        host.call("bridge", pod, conf::bridge())
            .with("ipam", conf::dual_stack())
            .with("vlan", 100)
    };
    let result = call(&a).add().result();
    host.assert_asks_at_once("br0.100");
    assert_eq!(result["interfaces"][3]["name"], "br0.100");
    assert_eq!(host.addrs("br0.100"), ["10.1.0.1/24", "fd00:1::1/64"]);
    assert_eq!(host.addrs("br0"), Vec::<String>::new());
    assert!(a.can_ping("10.1.0.1"));
    let index = host.the_link("br0.100")["ifindex"].clone();
    call(&b).add().result();
    assert_eq!(host.the_link("br0.100")["ifindex"], index, "made once");
    assert!(b.can_ping("10.1.0.1"));
    for pod in [&a, &b] {
        call(pod).del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn vlans_on_a_bridge_without_filtering_are_reported_as_ineffective() {
    needs!(VlanFiltering);
    let host = Sandbox::new();
    host.run("ip link add br0 type bridge");
    let pod = host.pod("a");
    let answer = host
        .call("bridge", &pod, conf::bridge_l2())
        .with("vlan", 100)
        .add();
    answer.result();
    assert!(
        answer
            .stderr
            .contains("bridge br0 exists without vlan_filtering"),
        "{}",
        answer.stderr
    );
}

#[test]
fn vlans_out_of_bounds_are_refused_by_key_and_value() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    for (key, value, sentence) in [
        (
            "vlan",
            json!(4095),
            "invalid VLAN ID 4095 (must be between 0 and 4094)",
        ),
        ("vlan", json!(-1), "invalid VLAN ID -1"),
        (
            "vlanTrunk",
            json!([{"minID": 0, "maxID": 5}]),
            "incorrect trunk minID parameter: 0",
        ),
        (
            "vlanTrunk",
            json!([{"minID": 1, "maxID": 4095}]),
            "incorrect trunk maxID parameter: 4095",
        ),
        (
            "vlanTrunk",
            json!([{"id": 5000}]),
            "incorrect trunk id parameter: 5000",
        ),
        (
            "vlanTrunk",
            json!([{"minID": 20, "maxID": 10}]),
            "minID is greater than maxID in trunk parameter",
        ),
        ("vlanTrunk", json!([{"minID": 20}]), "maxID is missing"),
        ("vlanTrunk", json!([{"maxID": 20}]), "minID is missing"),
    ] {
        host.call("bridge", &pod, conf::bridge_l2())
            .with(key, value)
            .add()
            .refused(7, &[sentence]);
    }
    before.assert_same(&host.state());
}
