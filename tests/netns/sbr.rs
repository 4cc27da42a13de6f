//! `sbr`: packets from the address of an interface leave through this interface.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};
use std::rc::Rc;

/// Creates a network behind the host's link `lan`, with an IPv4 and an IPv6 gateway and an address
/// behind each. Returns the gateways' namespace.
fn lan(host: &Sandbox) -> Rc<Ns> {
    let far = host.outside("lan", "10.3.0.254/24", "10.3.0.1/24");
    for addr in ["fd00:3::1/64", "198.51.100.9/32", "2001:db8::9/128"] {
        far.run(&format!("ip addr add {addr} dev lan nodad"));
    }
    far
}

fn ipam() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.2"}], [{"subnet": "fd00:3::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]})
}

fn macvlan(host: &Sandbox, pod: &Ns) -> Call {
    host.call("macvlan", pod, conf::macvlan())
        .with("ipam", ipam())
        .ifname("net1")
}

/// Returns a call of `sbr` with the result `prev` of an earlier plugin, and with additional keys.
fn behind(host: &Sandbox, pod: &Ns, prev: &Value, keys: &Value) -> Call {
    let mut call = host
        .call(
            "sbr",
            pod,
            json!({"cniVersion": "1.1.0", "name": "net", "type": "sbr"}),
        )
        .ifname("net1");
    for (key, value) in keys.as_object().into_iter().flatten() {
        call = call.with(key, value.clone());
    }
    call.prev(prev)
}

fn in_one_call(host: &Sandbox, pod: &Ns, keys: &Value) -> Call {
    let mut macvlan = conf::macvlan();
    macvlan["ipam"] = ipam();
    let mut sbr = json!({"type": "sbr"});
    for (key, value) in keys.as_object().into_iter().flatten() {
        sbr[key] = value.clone();
    }
    let list =
        json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [macvlan, sbr]});
    host.call("braid", pod, list).ifname("net1")
}

/// Returns source, table and priority of each policy routing rule that has a source address.
fn rules(pod: &Ns) -> Vec<String> {
    let all = ["-4", "-6"]
        .iter()
        .flat_map(|family| pod.list(&format!("ip {family} -j rule")));
    let own = all.filter(|rule| rule["src"] != "all");
    own.map(|rule| format!("{} {} {}", rule["src"], rule["table"], rule["priority"]))
        .collect()
}

/// Returns the routes of a table, except those that the kernel creates for each link.
fn table(pod: &Ns, table: &str) -> Vec<String> {
    let all = ["-4", "-6"].iter().flat_map(|family| {
        // `ip` fails for a table that never had a route.
        let shown = pod
            .try_run(&format!("ip {family} -j route show table {table}"))
            .unwrap_or_default();
        serde_json::from_str::<Vec<Value>>(&shown).unwrap_or_default()
    });
    let own = all.filter(|route| route["dst"] != "fe80::/64" && route["dst"] != "ff00::/8");
    let mut all: Vec<String> = own
        .map(|route| format!("{} {} {}", route["dst"], route["gateway"], route["prefsrc"]))
        .collect();
    all.sort();
    all
}

const RULES: [&str; 2] = [r#""10.3.0.2" "100" 32765"#, r#""fd00:3::2" "101" 32765"#];
const TABLE_100: [&str; 2] = [
    r#""10.3.0.0/24" null "10.3.0.2""#,
    r#""default" "10.3.0.1" null"#,
];
const TABLE_101: [&str; 2] = [
    r#""default" "fd00:3::1" null"#,
    r#""fd00:3::/64" null null"#,
];

#[test]
fn each_address_has_its_own_table_and_the_main_table_is_empty() {
    for is_one in [true, false] {
        let host = Sandbox::new();
        let _far = lan(&host);
        let pod = host.pod("a");
        let main = macvlan(&host, &pod);
        let prev = if is_one {
            Value::Null
        } else {
            main.add().result()
        };
        let call = if is_one {
            in_one_call(&host, &pod, &json!({}))
        } else {
            behind(&host, &pod, &prev, &json!({}))
        };
        let result = call.add().result();
        assert_eq!(rules(&pod), RULES, "in one call: {is_one}");
        assert_eq!(
            (table(&pod, "100"), table(&pod, "101")),
            (
                TABLE_100.map(str::to_owned).into(),
                TABLE_101.map(str::to_owned).into()
            )
        );
        assert_eq!(table(&pod, "main"), Vec::<String>::new());
        call.check(&result).ok();
        if !is_one {
            assert_eq!(result, prev);
            // CHECK of the earlier plugin accepts its routes in another table.
            main.check(&prev).ok();
        }
        call.del().ok();
        assert_eq!(rules(&pod), Vec::<String>::new());
        call.del().ok();
        main.del().ok();
        host.assert_nothing_left();
        assert_eq!(pod.link_names(), Vec::<String>::new());
    }
}

#[test]
fn the_source_address_selects_the_interface() {
    let host = Sandbox::new();
    let far = lan(&host);
    let pod = host.pod("a");
    let bridge = host
        .call("bridge", &pod, conf::bridge())
        .with("isDefaultGateway", true);
    let attached = bridge.add().result();
    let call = in_one_call(&host, &pod, &json!({}));
    let result = call.add().result();
    let ways = |from: &str| {
        let way = pod
            .list(&format!("ip -j route get 198.51.100.9 from {from}"))
            .remove(0);
        (way["gateway"].clone(), way["dev"].clone())
    };
    assert_eq!(ways("10.3.0.2"), (json!("10.3.0.1"), json!("net1")));
    assert_eq!(ways("10.1.0.2"), (json!("10.1.0.1"), json!("eth0")));
    pod.run("ping -c 1 -w 5 -I 10.3.0.2 198.51.100.9");
    pod.run("ping -6 -c 1 -w 5 -I fd00:3::2 2001:db8::9");
    drop(far);
    call.check(&result).ok();
    bridge.check(&attached).ok();
    call.del().ok();
    assert_eq!(ways("10.1.0.2"), (json!("10.1.0.1"), json!("eth0")));
    bridge.del().ok();
    host.assert_nothing_left();
}

#[test]
fn static_gateways_replace_the_gateways_of_the_addresses() {
    let host = Sandbox::new();
    let _far = lan(&host);
    let pod = host.pod("a");
    let call = in_one_call(
        &host,
        &pod,
        &json!({"gateways": ["fd00:3::99", "10.3.0.99"]}),
    );
    let result = call.add().result();
    assert!(
        table(&pod, "100").contains(&r#""default" "10.3.0.99" null"#.to_owned()),
        "{:?}",
        table(&pod, "100")
    );
    assert!(
        table(&pod, "101").contains(&r#""default" "fd00:3::99" null"#.to_owned()),
        "{:?}",
        table(&pod, "101")
    );
    call.check(&result).ok();
    for (gateways, word) in [
        (
            json!(["10.3.0.1", "10.3.0.3"]),
            "gateways list contains multiple IPv4 addresses: 10.3.0.1 and 10.3.0.3",
        ),
        (
            json!(["10.3.0.1", "fd00::1", "fd00::2"]),
            "gateways list cannot contain more than 2 entries",
        ),
        (json!(["10.3.0.256"]), "invalid static gateway IP address"),
    ] {
        behind(&host, &pod, &result, &json!({"gateways": gateways}))
            .add()
            .refused(7, &[word]);
    }
}

#[test]
fn source_hints_keep_the_networks_in_the_main_table() {
    let host = Sandbox::new();
    let _far = lan(&host);
    let pod = host.pod("a");
    let call = in_one_call(&host, &pod, &json!({"addSourceHints": true}));
    let result = call.add().result();
    let hints = [
        r#""10.3.0.0/24" null "10.3.0.2""#,
        r#""fd00:3::/64" null "fd00:3::2""#,
    ];
    assert_eq!(
        (rules(&pod), table(&pod, "main")),
        (
            RULES.map(str::to_owned).into(),
            hints.map(str::to_owned).into()
        )
    );
    // Packets whose source address is not set reach the network, but not the addresses behind the
    // gateways.
    assert!(pod.can_ping("10.3.0.1") && pod.can_ping("fd00:3::1"));
    assert!(pod.try_run("ip route get 198.51.100.9").is_err());
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn an_existing_table_gets_only_rules() {
    let host = Sandbox::new();
    let _far = lan(&host);
    let pod = host.pod("a");
    let prev = macvlan(&host, &pod).add().result();
    let before = table(&pod, "main");
    // The other keys are then ignored, even invalid ones.
    let call = behind(
        &host,
        &pod,
        &prev,
        &json!({"table": 5000, "gateways": ["x"], "addSourceHints": true}),
    );
    let result = call.add().result();
    assert_eq!(
        rules(&pod),
        [r#""10.3.0.2" "5000" 32765"#, r#""fd00:3::2" "5000" 32765"#]
    );
    assert_eq!(table(&pod, "main"), before);
    call.check(&result).ok();
    pod.run("ip rule del from 10.3.0.2");
    call.check(&result).refused(999, &["10.3.0.2", "5000"]);
    call.del().ok();
    assert_eq!(rules(&pod), Vec::<String>::new());
    behind(&host, &pod, &prev, &json!({"table": 0}))
        .add()
        .refused(7, &["\"table\""]);
}

#[test]
fn a_table_with_a_route_or_a_rule_is_not_free() {
    let host = Sandbox::new();
    let _far = lan(&host);
    let pod = host.pod("a");
    pod.run("ip link set lo up");
    pod.run("ip route add 192.0.2.0/24 dev lo table 100");
    pod.run("ip rule add fwmark 7 lookup 101");
    pod.run("ip -6 rule add to 2001:db8:1::/64 lookup 102");
    in_one_call(&host, &pod, &json!({})).add().result();
    assert_eq!(
        rules(&pod),
        [r#""10.3.0.2" "103" 32764"#, r#""fd00:3::2" "104" 32764"#]
    );
}

#[test]
fn a_missing_prev_result_or_missing_addresses_are_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    let bare = json!({"cniVersion": "1.1.0", "name": "net", "type": "sbr"});
    host.call("sbr", &pod, bare)
        .add()
        .refused(7, &["This plugin must be called as chained plugin"]);
    let prev =
        json!({"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/a"}]});
    behind(&host, &pod, &prev, &json!({}))
        .add()
        .refused(7, &["No IP addresses supplied on interface: net1"]);
    let ips = json!([{"address": "10.3.0.2/24"}]);
    let prev = json!({"cniVersion": "1.1.0", "ips": ips});
    behind(&host, &pod, &prev, &json!({}))
        .add()
        .refused(999, &["Cannot find network interface net1"]);
    before.assert_same(&host.state());
}

#[test]
fn a_failed_add_restores_the_routes_of_the_main_table() {
    let host = Sandbox::new();
    let _far = lan(&host);
    let pod = host.pod("a");
    let mut prev = macvlan(&host, &pod).add().result();
    let before = (table(&pod, "main"), table(&pod, "100"), rules(&pod));
    // The kernel refuses a route whose source address is not on the interface. This step fails
    // after all other steps.
    prev["ips"] = json!([{"address": "10.3.0.77/24", "gateway": "10.3.0.1", "interface": 0}]);
    behind(&host, &pod, &prev, &json!({"addSourceHints": true}))
        .add()
        .refused(999, &["10.3.0.77"]);
    assert_eq!(
        (table(&pod, "main"), table(&pod, "100"), rules(&pod)),
        before
    );
}

/// Routes of `net1` that other programs have created. Together they have every attribute that a
/// route can have.
const ROUTES: &[&str] = &[
    "198.51.100.0/28 via 10.3.0.1 dev net1 proto static metric 77 src 10.3.0.2 mtu lock 1400 advmss 1300 initcwnd 11",
    "198.51.100.16/28 via 10.99.0.1 dev net1 proto bird onlink",
    "198.51.100.32/28 dev net1 proto 99 scope link window 5 quickack 1",
    "198.51.100.48/28 proto static nexthop via 10.3.0.1 dev net1 weight 2 nexthop via 10.3.0.9 dev net1",
    "198.51.100.64/28 proto static nhid 7",
    "default via 10.3.0.9 dev net1 proto dhcp metric 5",
    "2001:db8:5::/64 via fd00:3::1 dev net1 proto static metric 77 pref high mtu 1400",
    "2001:db8:6::/64 dev net1 proto ra expires 900",
    "2001:db8:7::/64 proto static nexthop via fd00:3::1 dev net1 nexthop via fd00:3::9 dev net1",
];

/// Returns all routes as `ip` prints them. `expires` becomes a flag, because it counts down.
fn all_routes(pod: &Ns) -> Vec<Value> {
    let mut all: Vec<Value> = ["-4", "-6"]
        .iter()
        .flat_map(|family| pod.list(&format!("ip {family} -j -d route show table all")))
        .collect();
    for route in all
        .iter_mut()
        .filter(|route| route.get("expires").is_some())
    {
        route["expires"] = true.into();
    }
    all
}

#[test]
fn a_failed_add_restores_each_route_with_all_attributes() {
    for plugin in [
        json!({"type": "sbr"}),
        json!({"type": "sbr", "addSourceHints": true}),
        json!({"type": "vrf", "vrfname": "red"}),
    ] {
        if plugin["type"] == "vrf" {
            needs!(Vrf);
        }
        let host = Sandbox::new();
        let _far = lan(&host);
        let pod = host.pod("a");
        let prev = macvlan(&host, &pod).add().result();
        pod.run("ip nexthop add id 7 via 10.3.0.1 dev net1");
        // A link that is added to a VRF is down for a moment, and the kernel then deletes its
        // nexthop objects.
        for route in ROUTES
            .iter()
            .filter(|route| plugin["type"] != "vrf" || !route.contains("nhid"))
        {
            pod.run(&format!("ip route add {route}"));
        }
        let before = all_routes(&pod);
        host.script(
            "fails",
            "#!/bin/sh\ncat >/dev/null\nip -n a route show table main >/run/seen\nexit 1\n",
        );
        let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [plugin, {"type": "fails"}]});
        let error = host
            .call("braid", &pod, list)
            .ifname("net1")
            .prev(&prev)
            .add()
            .error();
        let seen =
            std::fs::read_to_string("/run/seen").unwrap_or_else(|_| panic!("{plugin}: {error:?}"));
        assert!(!seen.contains("198.51.100.0/28"), "{plugin}: {seen}");
        pod.await_own_addresses();
        assert_eq!(all_routes(&pod), before, "{plugin}");
    }
}

#[test]
fn del_of_sbr_needs_no_record_link_or_namespace() {
    let host = Sandbox::new();
    let _far = lan(&host);
    let pod = host.pod("a");
    let addresses = [("10.3.0.2/24", "10.3.0.1"), ("fd00:3::2/64", "fd00:3::1")];
    let addresses =
        addresses.map(|(address, gateway)| json!({"address": address, "gateway": gateway}));
    let main = macvlan(&host, &pod).with("ipam", json!({"type": "static", "addresses": addresses}));
    let prev = main.add().result();
    let call = behind(&host, &pod, &prev, &json!({}));
    let again = || {
        main.del().ok();
        main.add().result();
    };
    for told in [true, false] {
        again();
        call.add().result();
        host.run("rm -r /run/braid/attachments/a");
        let call = if told {
            call.clone()
        } else {
            call.clone().with("prevResult", Value::Null)
        };
        call.del().ok();
        assert_eq!(rules(&pod), Vec::<String>::new(), "with the result: {told}");
    }
    again();
    call.add().result();
    pod.run("ip link del net1");
    call.del().ok();
    assert_eq!(rules(&pod), Vec::<String>::new());
    call.clone().env("CNI_NETNS", None).del().ok();
    host.end(&pod);
    call.del().ok();
    assert!(!std::fs::exists("/run/netns/nowhere").unwrap());
    call.env("CNI_NETNS", "/run/netns/nowhere").del().ok();
    assert!(
        !std::fs::exists("/run/netns/nowhere").unwrap(),
        "no file is made"
    );
    main.del().ok();
    host.assert_nothing_left();
}
