//! `ptp`, which is also called `veth`: veth pairs, and the form `routed`.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json};
use std::fs;

#[test]
fn a_container_reaches_its_gateway_in_both_families_and_by_both_names() {
    for plugin in ["ptp", "veth"] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = host
            .call(plugin, &pod, conf::ptp())
            .with("type", plugin)
            .with("ipam", conf::dual_stack());
        let result = call.add().result();
        assert_eq!(pod.addrs("eth0"), ["10.1.0.2/24", "fd00:1::2/64"]);
        assert!(
            pod.can_ping("10.1.0.1") && pod.can_ping("fd00:1::1"),
            "{plugin}"
        );
        assert!(
            host.can_ping("10.1.0.2") && host.can_ping("fd00:1::2"),
            "{plugin}"
        );
        call.check(&result).ok();
        call.del().ok();
        host.assert_nothing_left();
        assert_eq!(
            host.routes("-4").len() + host.routes("-6").len(),
            0,
            "{plugin}"
        );
    }
}

#[test]
fn the_network_is_reached_only_through_the_gateway() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let result = host.call("ptp", &pod, conf::ptp()).add().result();
    let routes: Vec<(Value, Value, Value)> = pod
        .routes("-4")
        .iter()
        .map(|r| (r["dst"].clone(), r["gateway"].clone(), r["prefsrc"].clone()))
        .collect();
    let source = json!("10.2.0.2");
    let expected = [
        (json!("10.2.0.0/24"), json!("10.2.0.1"), source.clone()),
        (json!("10.2.0.1"), Value::Null, source),
    ];
    assert_eq!(routes, expected);
    assert_eq!(
        result.get("routes"),
        None,
        "its own routes are not reported"
    );
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
        host.call("ptp", pod, conf::ptp())
            .with("mtu", 1400)
            .add()
            .result();
        assert_eq!(pod.the_link("eth0")["mtu"], 1400);
    }
    assert_eq!(b.seen_by(&a, "10.2.0.2").to_string(), "10.2.0.3");
}

#[test]
fn the_host_can_resolve_a_container_over_ipv6_immediately() {
    let host = Sandbox::new();
    host.detect_slowly();
    let pod = host.pod("a");
    let result = host
        .call("ptp", &pod, conf::ptp())
        .with("ipam", conf::dual_stack())
        .add()
        .result();
    let port = result["interfaces"][0]["name"].as_str().unwrap_or_default();
    host.assert_asks_at_once(port);
}

#[test]
fn any_configured_dns_field_replaces_the_dns_of_the_ipam() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let ipam = json!({"type": "static", "addresses": [{"address": "10.2.0.9/24", "gateway": "10.2.0.1"}],
        "dns": {"nameservers": ["192.0.2.53"], "domain": "ipam"}});
    let call = host.call("ptp", &pod, conf::ptp()).with("ipam", ipam);
    assert_eq!(
        call.add().result()["dns"],
        json!({"nameservers": ["192.0.2.53"], "domain": "ipam"})
    );
    call.del().ok();
    let own = call.with("dns", json!({"search": ["own"]}));
    assert_eq!(own.add().result()["dns"], json!({"search": ["own"]}));
}

#[test]
fn an_ipam_with_a_gateway_is_required() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    host.call("ptp", &pod, conf::ptp())
        .with("ipam", json!({}))
        .add()
        .refused(7, &["\"ipam\"", "ptp"]);
    let ipam = json!({"type": "static", "addresses": [{"address": "10.2.0.9/24"}]});
    host.call("ptp", &pod, conf::ptp())
        .with("ipam", ipam)
        .add()
        .refused(999, &["gateway", "10.2.0.9/24"]);
    before.assert_same(&host.state());
}

#[test]
fn mac_in_cni_args_is_ignored() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let ipam =
        json!({"type": "static", "addresses": [{"address": "10.2.0.9/24", "gateway": "10.2.0.1"}]});
    let call = host.call("ptp", &pod, conf::ptp()).with("ipam", ipam);
    call.args("IgnoreUnknown=1;MAC=c2:11:22:33:44:55")
        .add()
        .result();
    assert_ne!(pod.the_link("eth0")["address"], "c2:11:22:33:44:55");
}

/// Returns a dual-stack call with the key `routed`.
fn routed(host: &Sandbox, pod: &Ns) -> Call {
    host.call("ptp", pod, conf::ptp())
        .with("ipam", conf::dual_stack())
        .with("routed", true)
}

/// Returns priority, source, table and suppressed prefix length of each policy routing rule with an
/// input interface.
fn rules(host: &Ns) -> Vec<String> {
    let all = ["-4", "-6"]
        .iter()
        .flat_map(|family| host.list(&format!("ip {family} -j rule")));
    let own = all.filter(|rule| rule["iif"].is_string());
    own.map(|rule| {
        format!(
            "{} {} {} {}",
            rule["priority"], rule["src"], rule["table"], rule["suppress_prefixlen"]
        )
    })
    .collect()
}

#[test]
fn the_routed_form_has_host_addresses_and_a_link_local_gateway() {
    let host = Sandbox::new();
    host.detect_slowly();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let call = routed(&host, &a).with("mtu", 1400);
    let result = call.add().result();
    routed(&host, &b).add().result();
    assert_eq!(a.addrs("eth0"), ["10.1.0.2/32", "fd00:1::2/128"]);
    let ips = json!([{"address": "10.1.0.2/32", "gateway": "169.254.1.1", "interface": 1},
        {"address": "fd00:1::2/128", "gateway": "fe80::1", "interface": 1}]);
    assert_eq!(result["ips"], ips);
    assert_eq!(
        result["routes"],
        json!([{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}, {"dst": "::/0", "gw": "fe80::1"}])
    );
    let port = result["interfaces"][0]["name"].as_str().unwrap();
    assert_eq!(host.addrs(port), Vec::<String>::new());
    let neighbours: Vec<(Value, Value, Value)> = a
        .list("ip -j neigh show dev eth0 nud permanent")
        .iter()
        .map(|neigh| {
            (
                neigh["dst"].clone(),
                neigh["lladdr"].clone(),
                neigh["state"].clone(),
            )
        })
        .collect();
    let port_mac = result["interfaces"][0]["mac"].clone();
    let expected =
        ["169.254.1.1", "fe80::1"].map(|dst| (json!(dst), port_mac.clone(), json!(["PERMANENT"])));
    assert_eq!(neighbours, expected);
    // The node with any of its source addresses, and another container, can reach the container.
    host.run("ip addr add 192.0.2.1/32 dev lo");
    host.run("ip addr add 2001:db8::1/128 dev lo nodad");
    assert!(host.can_ping("10.1.0.2") && host.can_ping("fd00:1::2"));
    assert!(a.can_ping("192.0.2.1") && a.can_ping("2001:db8::1"));
    assert_eq!(a.seen_by(&b, "10.1.0.3").to_string(), "10.1.0.2");
    assert!(a.can_ping("fd00:1::3"));
    call.check(&result).ok();
    a.run("ip neigh del 169.254.1.1 dev eth0");
    call.check(&result).refused(999, &["169.254.1.1"]);
    call.del().ok();
    call.del().ok();
    host.end(&b);
    routed(&host, &b).del().ok();
    host.assert_nothing_left();
    assert_eq!(
        host.routes("-4").len() + host.routes("-6").len(),
        1,
        "{:?}",
        host.routes("-6")
    );
}

#[test]
fn a_table_routes_packets_of_a_container_except_to_its_neighbours() {
    let host = Sandbox::new();
    let main = host.outside("main", "192.0.2.1/24", "192.0.2.2/24");
    let uplink = host.outside("uplink", "198.51.100.1/24", "198.51.100.2/24");
    for (outside, gateway) in [(&main, "192.0.2.1"), (&uplink, "198.51.100.1")] {
        outside.run(&format!("ip route add 10.1.0.0/24 via {gateway}"));
        outside.run("ip addr add 203.0.113.9/32 dev lo");
    }
    host.run("ip route add default via 192.0.2.2");
    let (a, b) = (host.pod("a"), host.pod("b"));
    let [by_table, by_main] =
        [("a", Some(100)), ("b", None)].map(|(name, table): (&str, Option<u32>)| {
            let call = routed(&host, if name == "a" { &a } else { &b });
            table.map_or(call.clone(), |table| call.with("table", table))
        });
    let warned = by_table.status();
    assert!(
        warned.stderr.contains("table 100 has no route"),
        "{}",
        warned.stderr
    );
    host.run("ip route add default via 198.51.100.2 table 100");
    assert_eq!(by_table.status().stderr, "");
    let result = by_table.add().result();
    by_main.add().result();
    assert_eq!(a.seen_by(&uplink, "203.0.113.9").to_string(), "10.1.0.2");
    assert_eq!(b.seen_by(&main, "203.0.113.9").to_string(), "10.1.0.3");
    assert_eq!(a.seen_by(&b, "10.1.0.3").to_string(), "10.1.0.2");
    let expected = [
        r#"1535 "10.1.0.2" "main" 31"#,
        r#"1536 "10.1.0.2" "100" null"#,
        r#"1535 "fd00:1::2" "main" 127"#,
        r#"1536 "fd00:1::2" "100" null"#,
    ];
    assert_eq!(rules(&host), expected);
    by_table.check(&result).ok();
    let port = result["interfaces"][0]["name"].as_str().unwrap();
    host.run(&format!(
        "ip rule del priority 1536 from 10.1.0.2 iif {port}"
    ));
    by_table
        .check(&result)
        .refused(999, &["10.1.0.2", "table 100"]);
    by_table.del().ok();
    assert_eq!(rules(&host), Vec::<String>::new());
    by_main.del().ok();
    host.assert_nothing_left();
}

#[test]
fn rules_of_a_routed_container_are_deleted_without_record_or_container() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = routed(&host, &pod).with("table", 100);
    for lose in [true, false] {
        call.add().result();
        if lose {
            fs::remove_dir_all("/run/braid/attachments/a").unwrap();
        }
        call.del().ok();
        assert_eq!(rules(&host), Vec::<String>::new(), "lost: {lose}");
    }
    call.add().result();
    fs::remove_dir_all("/run/braid/attachments/a").unwrap();
    call.gc(&[]).ok();
    assert_eq!(rules(&host), Vec::<String>::new());
    // Another container may have got the address before the DEL arrives.
    call.add().result();
    host.end(&pod);
    let next = host.pod("b");
    let fixed = json!({"type": "static", "addresses": [{"address": "10.1.0.2/24"}]});
    let later = routed(&host, &next).with("table", 100).with("ipam", fixed);
    let result = later.add().result();
    call.del().ok();
    later.check(&result).ok();
    later.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_table_requires_the_routed_form() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    host.call("ptp", &pod, conf::ptp())
        .with("table", 100)
        .add()
        .refused(7, &["\"table\"", "\"routed\": true"]);
    routed(&host, &pod)
        .with("table", 0)
        .add()
        .refused(7, &["\"table\""]);
    before.assert_same(&host.state());
}

#[test]
fn masquerading_of_the_routed_form_excludes_the_network_of_the_ipam() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = routed(&host, &pod).with("ipMasq", true);
    let result = call.add().result();
    let map = host.run("nft list map inet braid masquerade4");
    assert!(
        map.contains("10.1.0.2") && map.contains("10.1.0.0/24"),
        "{map}"
    );
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}
