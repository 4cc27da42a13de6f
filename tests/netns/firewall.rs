//! `firewall`: traffic of containers that the host forwards although other rules drop it, and
//! traffic that it does not forward.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Service, Transport, Value, json, needs, state};
use std::rc::Rc;

/// Returns the configuration of a dual-stack network on the bridge `br<of>`, with `portmap` and
/// `firewall`.
fn network(of: u8, firewall: &Value) -> Value {
    let mut bridge = conf::bridge();
    bridge["bridge"] = json!(format!("br{of}"));
    bridge["ipam"] = json!({"type": "host-local",
        "ranges": [[{"subnet": format!("10.{of}.0.0/24")}], [{"subnet": format!("fd00:{of}::/64")}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]});
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    json!({"cniVersion": "1.1.0", "name": format!("net{of}"), "type": "braid", "plugins": [bridge, portmap, firewall]})
}

fn firewall() -> Value {
    json!({"type": "firewall"})
}

fn with_policy(policy: &str) -> Value {
    json!({"type": "firewall", "ingressPolicy": policy})
}

/// Creates a machine outside the host that has a route to the containers of `br1`.
fn outside(host: &Sandbox) -> Rc<Ns> {
    let outside = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    outside.run("ip route add 10.1.0.0/24 via 192.0.2.1");
    outside
}

fn attach(host: &Sandbox, pod: &Ns, conf: Value) -> (Call, Value) {
    let call = host.call("braid", pod, conf);
    let result = call.add().result();
    (call, result)
}

fn detach(attached: (Call, Value)) {
    attached.0.prev(&attached.1).del().ok();
}

/// Commands that create foreign rules, which drop forwarded packets.
const DROPPERS: [&str; 7] = [
    "iptables -P FORWARD DROP",
    "nft table inet own { chain forward { type filter hook forward priority 0; policy drop; }; }",
    "nft table ip own { chain any { type filter hook forward priority 50; policy drop; }; }",
    "nft table ip own { chain any { type filter hook forward priority 400; policy drop; }; }",
    "nft table ip filter { chain FORWARD { type filter hook forward priority 20; policy drop; }; }",
    "nft table inet own { chain any { type filter hook forward priority 10; reject with icmpx admin-prohibited; }; }",
    "iptables -t mangle -P FORWARD DROP",
];

#[test]
fn a_container_reaches_the_world_past_drop_rules_but_only_answers_return() {
    for dropper in DROPPERS {
        let host = Sandbox::new();
        let outside = outside(&host);
        host.run(dropper);
        let (a, b) = (host.pod("a"), host.pod("b"));
        let of_bridge = json!({"cniVersion": "1.1.0", "name": "net1", "type": "braid",
            "plugins": [network(1, &firewall())["plugins"][0]]});
        let without = attach(&host, &a, of_bridge);
        assert!(a.cannot_ping("192.0.2.2"), "{dropper}");
        let mapping = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
        let call = host.call("braid", &b, network(1, &firewall()));
        let call = call.with("runtimeConfig", json!({"portMappings": mapping}));
        let result = call.add().result();
        let _service = Service::start(&b, Transport::Tcp, 80);
        assert!(b.can_ping("192.0.2.2"), "{dropper}");
        assert!(outside.cannot_ping("10.1.0.3"), "{dropper}");
        let led = outside.ask(Transport::Tcp, "192.0.2.1:8080");
        assert_eq!(led, Ok("192.0.2.2".parse().unwrap()), "{dropper}");
        assert!(a.cannot_ping("192.0.2.2"), "{dropper}");
        call.check(&result).ok();
        call.prev(&result).del().ok();
        detach(without);
        assert_eq!(state::elements(&host), Vec::<String>::new(), "{dropper}");
    }
}

#[test]
fn the_administrators_chain_precedes_accepted_traffic() {
    let host = Sandbox::new();
    let _outside = outside(&host);
    host.run("iptables -P FORWARD DROP");
    for (name, key) in [
        ("CNI-ADMIN", json!({})),
        ("MINE", json!({"iptablesAdminChainName": "MINE"})),
    ] {
        let mut conf = firewall();
        conf.as_object_mut()
            .unwrap()
            .extend(key.as_object().unwrap().clone());
        let pod = host.pod(name);
        let attached = attach(&host, &pod, network(1, &conf));
        assert!(pod.can_ping("192.0.2.2"), "{name}");
        host.run(&format!("iptables -A {name} -d 192.0.2.2 -j DROP"));
        assert!(pod.cannot_ping("192.0.2.2"), "{name}");
        host.run(&format!("iptables -F {name}"));
        detach(attached);
    }
}

#[test]
fn iptables_reads_its_chains_and_finds_each_rule_once() {
    const PODS: usize = 6;
    let host = Sandbox::new();
    let pods: Vec<_> = (0..PODS)
        .map(|number| host.pod(&format!("p{number}")))
        .collect();
    let calls: Vec<_> = pods
        .iter()
        .map(|pod| host.call("braid", pod, network(1, &firewall())))
        .collect();
    let results: Vec<Value> = std::thread::scope(|scope| {
        let threads: Vec<_> = calls
            .iter()
            .map(|call| scope.spawn(|| call.add().result()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for tool in ["iptables", "ip6tables"] {
        let rules = host.run(&format!("{tool} -S"));
        let rules: Vec<&str> = rules
            .lines()
            .filter(|line| line.starts_with("-A"))
            .collect();
        let expected = [
            r#"-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD"#,
            r#"-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN"#,
            r#"-A CNI-FORWARD -m mark --mark 0x1000/0x1000 -m comment --comment "braid firewall" -j ACCEPT"#,
        ];
        assert_eq!(rules, expected, "{tool}");
    }
    for (call, result) in calls.into_iter().zip(results) {
        detach((call, result));
    }
    assert_eq!(state::elements(&host), Vec::<String>::new());
}

#[test]
fn check_reports_missing_rules_and_the_next_add_restores_them() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let conf = network(1, &with_policy("isolated"));
    let damages = [
        (
            "nft delete element inet braid firewall4 { 10.1.0.2 }",
            "10.1.0.2 is not accepted",
        ),
        (
            "iptables -F FORWARD",
            "ip filter FORWARD does not jump to CNI-FORWARD",
        ),
        (
            "ip6tables -F CNI-FORWARD",
            "ip6 filter CNI-FORWARD does not jump to CNI-ADMIN",
        ),
        (
            "nft delete element inet braid isolated { br1 }",
            "br1 is missing in isolated",
        ),
        (
            "nft table inet x { chain y { type filter hook forward priority 0; policy drop; }; }",
            "inet x y drops",
        ),
    ];
    for (damage, said) in damages {
        let (call, result) = attach(&host, &pod, conf.clone());
        call.check(&result).ok();
        host.run(damage);
        call.check(&result).refused(999, &[said]);
        call.del().ok();
        let (call, result) = attach(&host, &pod, conf.clone());
        call.check(&result).ok();
        detach((call, result));
        host.run("nft flush ruleset");
        std::fs::remove_dir_all("/var/lib/cni/networks").unwrap();
    }
}

#[test]
fn del_and_gc_delete_rules_without_a_record() {
    for by_gc in [false, true] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let (call, _) = attach(&host, &pod, network(1, &with_policy("isolated")));
        assert!(!state::elements(&host).is_empty());
        std::fs::remove_dir_all("/run/braid/attachments").unwrap();
        if by_gc {
            call.gc(&[]).ok();
        } else {
            call.del().ok();
        }
        assert_eq!(
            state::elements(&host),
            Vec::<String>::new(),
            "by GC: {by_gc}"
        );
        call.del().ok();
    }
}

/// Attaches two containers on `br1` and one on `br2`, all with the ingress policy `policy`.
fn three(host: &Sandbox, policy: &str) -> (Vec<Rc<Ns>>, Vec<(Call, Value)>) {
    let pods: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|name| host.pod(name))
        .collect();
    let of = |(pod, of): (&Rc<Ns>, u8)| attach(host, pod, network(of, &with_policy(policy)));
    let attached = pods.iter().zip([1, 1, 2]).map(of).collect();
    (pods, attached)
}

#[test]
fn a_policy_isolates_bridges_and_containers_of_one_bridge() {
    for (policy, sibling, stranger) in [
        ("open", true, true),
        ("same-bridge", true, false),
        ("isolated", false, false),
    ] {
        let host = Sandbox::new();
        let _outside = outside(&host);
        let (pods, attached) = three(&host, policy);
        let [a, _, _] = pods.as_slice() else {
            panic!("three")
        };
        assert!(a.can_ping_only_if(sibling, "10.1.0.3"), "{policy}");
        assert!(a.can_ping_only_if(stranger, "10.2.0.2"), "{policy}");
        assert!(
            a.can_ping("192.0.2.2") && a.can_ping("10.1.0.1"),
            "{policy}"
        );
        let one_stays: Vec<_> = attached
            .into_iter()
            .enumerate()
            .filter_map(|(at, attached)| {
                if at == 0 {
                    Some(attached)
                } else {
                    detach(attached);
                    None
                }
            })
            .collect();
        let pod = host.pod("d");
        let open = attach(&host, &pod, network(1, &with_policy(policy)));
        assert!(
            a.can_ping_only_if(sibling, "10.1.0.4"),
            "{policy}, for a remaining container"
        );
        detach(open);
        one_stays.into_iter().for_each(detach);
        assert_eq!(state::elements(&host), Vec::<String>::new(), "{policy}");
        host.assert_nothing_left();
    }
}

#[test]
fn a_policy_applies_with_bridge_nf_call_iptables() {
    needs!(BridgeNf);
    for (policy, sibling) in [("same-bridge", true), ("isolated", false)] {
        let host = Sandbox::new();
        host.set_sysctl("net/bridge/bridge-nf-call-iptables", "1");
        let (pods, attached) = three(&host, policy);
        assert!(pods[0].can_ping_only_if(sibling, "10.1.0.3"), "{policy}");
        assert!(pods[0].cannot_ping("10.2.0.2"), "{policy}");
        attached.into_iter().for_each(detach);
    }
}

#[test]
fn an_invalid_policy_or_chain_is_refused_before_any_change() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    // STATUS records in braid's state that nothing is missing in nf_tables.
    host.call("braid", &pod, network(1, &firewall()))
        .status()
        .ok();
    let state = host.state().without_marks();
    for (conf, said) in [
        (with_policy("closed"), "unknown ingress policy: \"closed\""),
        (
            json!({"type": "firewall", "iptablesAdminChainName": "a b"}),
            "\"a b\"",
        ),
        (
            json!({"type": "firewall", "iptablesAdminChainName": "a;b"}),
            "\"a;b\"",
        ),
        (
            json!({"type": "firewall", "iptablesAdminChainName": "ACCEPT"}),
            "\"ACCEPT\"",
        ),
        (
            json!({"type": "firewall", "iptablesAdminChainName": "FORWARD"}),
            "\"FORWARD\"",
        ),
    ] {
        let call = host.call("braid", &pod, network(1, &conf));
        call.add().refused(7, &[said]);
        state.assert_same(&host.state().without_marks());
        call.del().ok();
    }
}

#[test]
fn a_separate_firewall_coexists_with_the_reference_and_deletes_its_rules() {
    needs!(Reference);
    let host = Sandbox::new();
    host.run("iptables -P FORWARD DROP");
    let _outside = outside(&host);
    let pods = ["a", "b"].map(|name| host.pod(name));
    let mut calls = Vec::new();
    let mut main = conf::bridge();
    main["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    for (pod, by_reference) in pods.iter().zip([true, false]) {
        let bridge = host.call("bridge", pod, main.clone());
        let result = bridge.add().result();
        let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "firewall"});
        let call = host.call("firewall", pod, conf).prev(&result);
        let add = if by_reference {
            call.clone().reference()
        } else {
            call.clone()
        };
        assert_eq!(add.add().result(), result);
        assert!(
            pod.can_ping("192.0.2.2"),
            "by the reference: {by_reference}"
        );
        calls.push((bridge, call));
    }
    assert_eq!(
        host.run("iptables -S FORWARD")
            .matches("-j CNI-FORWARD")
            .count(),
        1
    );
    let rules = || {
        host.run("iptables -S CNI-FORWARD")
            .matches("10.1.0.")
            .count()
    };
    assert_eq!(rules(), 2);
    for (bridge, call) in calls {
        call.del().ok();
        bridge.del().ok();
    }
    assert_eq!(rules(), 0);
    assert_eq!(state::elements(&host), Vec::<String>::new());
}

#[test]
fn rules_restored_by_iptables_restore_are_recognized() {
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let (call, result) = attach(&host, &a, network(1, &firewall()));
    std::fs::write("/run/saved", host.run("iptables-save")).unwrap();
    host.run("iptables -F");
    host.run("iptables-restore /run/saved");
    call.check(&result).ok();
    let other = attach(&host, &b, network(1, &firewall()));
    assert_eq!(
        host.run("iptables -S CNI-FORWARD")
            .matches("-j ACCEPT")
            .count(),
        1
    );
    detach(other);
    detach((call, result));
}

#[test]
fn status_restores_forwarding_that_others_blocked() {
    let host = Sandbox::new();
    let _outside = outside(&host);
    let pod = host.pod("a");
    host.run("iptables -P FORWARD DROP");
    let (call, result) = attach(&host, &pod, network(1, &firewall()));
    for shut in [
        "iptables -F FORWARD",
        "nft table ip own { chain any { type filter hook forward priority 9; policy drop; }; }",
    ] {
        host.run(shut);
        assert!(pod.cannot_ping("192.0.2.2"), "{shut}");
        call.status().ok();
        assert!(pod.can_ping("192.0.2.2"), "{shut}");
        call.check(&result).ok();
    }
    detach((call, result));
}

#[test]
fn foreign_marks_allow_no_traffic_and_other_mark_bits_are_kept() {
    let host = Sandbox::new();
    let outside = outside(&host);
    host.run("iptables -P FORWARD DROP");
    host.run("iptables -t mangle -A PREROUTING -j MARK --set-mark 0xffff");
    host.run("iptables -t mangle -A FORWARD -j MARK --set-mark 0xffff");
    host.run("iptables -t mangle -A POSTROUTING -m mark --mark 0xefff");
    let pod = host.pod("a");
    let attached = attach(&host, &pod, network(1, &firewall()));
    assert!(pod.can_ping("192.0.2.2"));
    assert!(outside.cannot_ping("10.1.0.2"));
    let listed = host.run("iptables -t mangle -nvxL POSTROUTING");
    let counted = listed
        .lines()
        .find(|line| line.contains("mark match"))
        .and_then(|line| line.split_whitespace().next());
    assert!(counted.is_some_and(|packets| packets != "0"), "{listed}");
    detach(attached);
}

#[test]
fn an_administrators_dnat_to_a_container_is_not_accepted() {
    let host = Sandbox::new();
    let outside = outside(&host);
    host.run("iptables -P FORWARD DROP");
    let pod = host.pod("a");
    let attached = attach(&host, &pod, network(1, &firewall()));
    host.run(
        "iptables -t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 10.1.0.2:80",
    );
    let _service = Service::start(&pod, Transport::Tcp, 80);
    assert!(outside.asks_in_vain(Transport::Tcp, "192.0.2.1:8080"));
    detach(attached);
}

#[test]
fn a_policy_survives_a_late_del_after_the_address_was_reused() {
    let host = Sandbox::new();
    let _outside = outside(&host);
    let mut one = network(1, &with_policy("same-bridge"));
    one["plugins"][0]["ipam"] = json!({"type": "host-local",
        "ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.2", "rangeEnd": "10.1.0.2"}]],
        "routes": [{"dst": "0.0.0.0/0"}]});
    let (dead, living, other) = (host.pod("a"), host.pod("b"), host.pod("c"));
    let first = attach(&host, &dead, one.clone());
    let stranger = attach(&host, &other, network(2, &with_policy("same-bridge")));
    host.end(&dead);
    let second = attach(&host, &living, one);
    first.0.del().ok();
    assert!(living.cannot_ping("10.2.0.2"));
    assert!(living.can_ping("192.0.2.2"));
    second.0.check(&second.1).ok();
    detach(second);
    detach(stranger);
    assert_eq!(state::elements(&host), Vec::<String>::new());
}

#[test]
fn a_policy_needs_a_bridge_of_the_host() {
    let host = Sandbox::new();
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    let pod = host.pod("a");
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid",
        "plugins": [conf::macvlan(), with_policy("same-bridge")]});
    host.call("braid", &pod, conf)
        .add()
        .refused(7, &["ingressPolicy"]);
    host.assert_nothing_left();
}
