//! `ptp`, also called `veth`.

use crate::conf;
use braid_tests::{Sandbox, Value, json};

#[test]
fn a_container_reaches_its_gateway_in_both_families_and_by_both_names() {
    for plugin in ["ptp", "veth"] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = host.call(plugin, &pod, conf::ptp()).with("type", plugin).with("ipam", conf::dual_stack());
        let result = call.add().result();
        assert_eq!(pod.addrs("eth0"), ["10.1.0.2/24", "fd00:1::2/64"]);
        assert!(pod.can_ping("10.1.0.1") && pod.can_ping("fd00:1::1"), "{plugin}");
        assert!(host.can_ping("10.1.0.2") && host.can_ping("fd00:1::2"), "{plugin}");
        call.check(&result).ok();
        call.del().ok();
        host.assert_nothing_left();
        assert_eq!(host.routes("-4").len() + host.routes("-6").len(), 0, "{plugin}");
    }
}

#[test]
fn the_network_is_reached_through_the_gateway_only() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let result = host.call("ptp", &pod, conf::ptp()).add().result();
    let routes: Vec<(Value, Value, Value)> =
        pod.routes("-4").iter().map(|r| (r["dst"].clone(), r["gateway"].clone(), r["prefsrc"].clone())).collect();
    let source = json!("10.2.0.2");
    let expected =
        [(json!("10.2.0.0/24"), json!("10.2.0.1"), source.clone()), (json!("10.2.0.1"), Value::Null, source)];
    assert_eq!(routes, expected);
    assert_eq!(result.get("routes"), None, "its own routes are not reported");
    assert_eq!(result["ips"][0]["interface"], 1);
    let port = result["interfaces"][0]["name"].as_str().unwrap_or_default();
    assert_eq!(host.addrs(port), ["10.2.0.1/32"]);
    assert_eq!(host.routes("-4")[0]["dst"], "10.2.0.2");
}

#[test]
fn two_containers_reach_each_other_through_the_host() {
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    for pod in [&a, &b] {
        host.call("ptp", pod, conf::ptp()).with("mtu", 1400).add().result();
        assert_eq!(pod.the_link("eth0")["mtu"], 1400);
    }
    assert_eq!(b.seen_by(&a, "10.2.0.2").to_string(), "10.2.0.3");
}

#[test]
fn the_host_can_ask_for_a_container_with_ipv6_at_once() {
    let host = Sandbox::new();
    host.detect_slowly();
    let pod = host.pod("a");
    let result = host.call("ptp", &pod, conf::ptp()).with("ipam", conf::dual_stack()).add().result();
    let port = result["interfaces"][0]["name"].as_str().unwrap_or_default();
    host.assert_asks_at_once(port);
}

#[test]
fn any_dns_field_of_the_configuration_replaces_all_of_the_ipam() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let ipam = json!({"type": "static", "addresses": [{"address": "10.2.0.9/24", "gateway": "10.2.0.1"}],
        "dns": {"nameservers": ["192.0.2.53"], "domain": "ipam"}});
    let call = host.call("ptp", &pod, conf::ptp()).with("ipam", ipam);
    assert_eq!(call.add().result()["dns"], json!({"nameservers": ["192.0.2.53"], "domain": "ipam"}));
    call.del().ok();
    let own = call.with("dns", json!({"search": ["own"]}));
    assert_eq!(own.add().result()["dns"], json!({"search": ["own"]}));
}

#[test]
fn an_ipam_is_needed_and_its_gateway_too() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    host.call("ptp", &pod, conf::ptp()).with("ipam", json!({})).add().refused(7, &["\"ipam\"", "ptp"]);
    let ipam = json!({"type": "static", "addresses": [{"address": "10.2.0.9/24"}]});
    host.call("ptp", &pod, conf::ptp()).with("ipam", ipam).add().refused(999, &["gateway", "10.2.0.9/24"]);
    before.assert_same(&host.state());
}

#[test]
fn cni_args_are_not_looked_at() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let ipam = json!({"type": "static", "addresses": [{"address": "10.2.0.9/24", "gateway": "10.2.0.1"}]});
    let call = host.call("ptp", &pod, conf::ptp()).with("ipam", ipam);
    call.args("IgnoreUnknown=1;MAC=c2:11:22:33:44:55").add().result();
    assert_ne!(pod.the_link("eth0")["address"], "c2:11:22:33:44:55");
}
