//! `probe`: addresses that another host on the link has are not used. The other host is a namespace
//! with a link in the bridge, or on the parent, of the pods.

use super::{NAMESPACE, Node, addresses, agent};
use crate::agent::await_true;
use crate::json;
use braid_tests::{Call, Feature, Ns, Value};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Hardware address of the other host.
const MAC: &str = "02:00:00:00:41:01";

/// Creates the bridge of the pods, with a host that has these addresses.
fn other_host(node: &Node, has: &[&str]) -> Rc<Ns> {
    let (sandbox, other) = (&node.world.sandbox, node.world.sandbox.pod("other"));
    let host = sandbox.host();
    host.run("ip link add lan0 type bridge");
    host.run("ip link set lan0 up");
    host.run(&format!(
        "ip link add other0 master lan0 type veth peer name eth0 address {MAC} netns {}",
        other.path().display()
    ));
    host.run("ip link set other0 up");
    other.run("ip link set eth0 up");
    for address in has {
        let nodad = if address.contains(':') { "nodad" } else { "" };
        other.run(&format!("ip addr add {address} dev eth0 {nodad}"));
    }
    other
}

/// Counts the ARP probes that a host receives from now on.
fn count_probes(host: &Ns) {
    host.run("nft add table arp seen");
    host.run("nft add chain arp seen in { type filter hook input priority 0 ; }");
    host.run("nft add rule arp seen in arp saddr ip 0.0.0.0 counter");
}

/// Returns the number of ARP probes that a host has received.
fn probes(host: &Ns) -> u64 {
    let table = host.json("nft -j list table arp seen");
    let all = table["nftables"].as_array().expect("a list");
    let rule = all.iter().find_map(|one| one["rule"]["expr"].as_array());
    let counter = rule.and_then(|expr| expr.iter().find_map(|one| one.get("counter")));
    counter.expect("a counter")["packets"]
        .as_u64()
        .expect("a number")
}

fn ids(node: &Node, pool: &str) -> Vec<String> {
    node.entries(pool).into_iter().map(|(at, _)| at).collect()
}

fn end(calls: &[&Call]) {
    for call in calls {
        call.del().ok();
    }
}

#[test]
fn an_address_of_another_host_is_refused_in_both_families_and_tried_last_from_then_on() {
    let Some(node) = Node::new("whereabouts-probe") else {
        return;
    };
    let other = other_host(&node, &["10.211.0.1/29", "fd41::1/125"]);
    let (v4, v6) = ("10.211.0.0-29", "fd41---125");
    let ipam = json!({
        "ipRanges": [{"range": "10.211.0.0/29"}, {"range": "fd41::/125"}],
        "probe": true,
    });
    let (first, call) = node.pod("first", &ipam);
    let answer = call.add();
    for address in ["10.211.0.1", "fd41::1"] {
        let sentence = format!("address {address} is used by another host, {MAC}");
        assert!(answer.stderr.contains(&sentence), "{}", answer.stderr);
    }
    let result = answer.result();
    assert_eq!(addresses(&result), ["10.211.0.2/29", "fd41::2/125"]);
    let mut on_link = first.addrs("eth0");
    on_link.retain(|address| !address.starts_with("fe80"));
    assert_eq!(on_link, ["10.211.0.2/29", "fd41::2/125"]);
    assert_eq!(
        (ids(&node, v4), ids(&node, v6)),
        (vec!["2".into()], vec!["2".into()])
    );
    assert!(other.can_ping("10.211.0.2") && other.can_ping("fd41::2"));
    call.check(&result).ok();
    // The next ADD does not begin with the refused addresses.
    let (_second, second) = node.pod("second", &ipam);
    let answer = second.add();
    assert!(!answer.stderr.contains("another host"), "{}", answer.stderr);
    assert_eq!(
        addresses(&answer.result()),
        ["10.211.0.3/29", "fd41::3/125"]
    );
    end(&[&call, &second]);
    // The other host has left, and all others are used.
    other.run("ip addr flush dev eth0");
    let pods: Vec<_> = (0..6)
        .map(|at| node.pod(&format!("p{at}"), &ipam))
        .collect();
    for (_ns, call) in &pods {
        call.add().result();
    }
    assert_eq!(ids(&node, v4).len(), 6);
    let all: Vec<&Call> = pods.iter().map(|(_, call)| call).collect();
    end(&all);
    assert_eq!((node.entries(v4), node.entries(v6)), (vec![], vec![]));
    node.world.sandbox.host().run("ip link del other0");
}

#[test]
fn a_third_refused_address_or_a_requested_one_fails_with_its_mac_and_leaves_nothing() {
    let Some(node) = Node::new("whereabouts-probe-requested") else {
        return;
    };
    let _other = other_host(
        &node,
        &["10.211.0.11/29", "10.211.0.12/29", "10.211.0.13/29"],
    );
    let ipam = json!({"range": "10.211.0.8/29", "range_start": "10.211.0.11", "probe": true});
    let (ns, call) = node.pod("third", &ipam);
    // Three candidates in a row end the ADD. The next one begins after them.
    call.add().refused(11, &["10.211.0.13", MAC]);
    assert!(ns.link("eth0").is_none());
    assert_eq!(node.entries("10.211.0.8-29"), []);
    assert_eq!(addresses(&call.add().result()), ["10.211.0.14/29"]);
    call.del().ok();
    let (ns, call) = node.pod("asks", &ipam);
    let call = call.with("args", json!({"cni": {"ips": ["10.211.0.12"]}}));
    call.add().refused(11, &["10.211.0.12", MAC]);
    assert!(ns.link("eth0").is_none());
    assert_eq!(node.entries("10.211.0.8-29"), []);
    node.world.sandbox.host().run("ip link del other0");
}

#[test]
fn the_second_range_is_next_when_other_hosts_have_all_of_the_first() {
    let Some(node) = Node::new("whereabouts-probe-first") else {
        return;
    };
    let other = other_host(&node, &["172.31.242.1/24", "172.31.242.2/24"]);
    let ipam = json!({
        "allocation": "first",
        "ipRanges": [{"range": "172.31.242.0/30"}, {"range": "172.31.242.8/30"}],
        "probe": true,
    });
    let (_first, first) = node.pod("first", &ipam);
    assert_eq!(addresses(&first.add().result()), ["172.31.242.9/30"]);
    let (_second, second) = node.pod("second", &ipam);
    assert_eq!(addresses(&second.add().result()), ["172.31.242.10/30"]);
    // Nothing else is free, and the other host has left.
    other.run("ip addr flush dev eth0");
    let (_third, third) = node.pod("third", &ipam);
    assert_eq!(addresses(&third.add().result()), ["172.31.242.1/30"]);
    end(&[&first, &second, &third]);
    for pool in ["172.31.242.0-30", "172.31.242.8-30"] {
        assert_eq!(node.entries(pool), [], "{pool}");
    }
    node.world.sandbox.host().run("ip link del other0");
}

#[test]
fn an_add_waits_a_tenth_of_a_second_with_probe_and_asks_no_host_without_it() {
    let Some(node) = Node::new("whereabouts-probe-none") else {
        return;
    };
    let other = other_host(&node, &["10.211.1.6/29"]);
    count_probes(&other);
    let ranges = json!([{"range": "10.211.1.0/29"}, {"range": "fd41::1:0/125"}]);
    let add = |name: &str, ipam: &Value| {
        let (_ns, call) = node.pod(name, ipam);
        let begin = Instant::now();
        call.add().result();
        let took = begin.elapsed();
        call.del().ok();
        took
    };
    let plain = json!({"ipRanges": ranges});
    let without = add("without", &plain);
    assert_eq!(probes(&other), 0);
    let with = add("with", &json!({"ipRanges": ranges, "probe": true}));
    assert!((1..=3).contains(&probes(&other)), "{}", probes(&other));
    let wait = Duration::from_millis(100);
    assert!(
        with >= wait && with < without + 20 * wait,
        "{with:?} {without:?}"
    );
    node.world.sandbox.host().run("ip link del other0");
}

#[test]
fn a_macvlan_probes_and_an_ipvlan_and_a_ptp_do_not() {
    let Some(node) = Node::new("whereabouts-probe-types") else {
        return;
    };
    let sandbox = &node.world.sandbox;
    let (host, other) = (sandbox.host(), sandbox.pod("other"));
    host.run(&format!(
        "ip link add par0 type veth peer name eth0 address {MAC} netns {}",
        other.path().display()
    ));
    host.run("ip link set par0 up");
    other.run("ip link set eth0 up");
    other.run("ip addr add 10.211.2.1/29 dev eth0");
    count_probes(&other);
    let ipam = json!({
        "type": "whereabouts",
        "range": "10.211.2.0/29",
        "gateway": "10.211.2.6",
        "probe": true,
        "kubernetes": {"kubeconfig": node.kubeconfig},
    });
    let of_type = |name: &str, kind: &str| {
        let (ns, call) = node.pod(name, &ipam);
        let conf = json!({
            "cniVersion": "1.0.0",
            "name": "lan",
            "type": kind,
            "master": "par0",
            "ipam": ipam,
        });
        (ns, call.plugin(kind).conf(conf))
    };
    let (ns, macvlan) = of_type("m", "macvlan");
    assert_eq!(addresses(&macvlan.add().result()), ["10.211.2.2/29"]);
    assert_eq!(ns.addrs("eth0")[0], "10.211.2.2/29");
    assert!(other.can_ping("10.211.2.2"));
    macvlan.del().ok();
    let seen = probes(&other);
    let (_ns, ptp) = of_type("p", "ptp");
    ptp.add().result();
    ptp.del().ok();
    if Feature::Ipvlan.is_here() {
        let (_ns, ipvlan) = of_type("i", "ipvlan");
        ipvlan.add().result();
        ipvlan.del().ok();
    }
    assert_eq!(probes(&other), seen);
    assert_eq!(node.entries("10.211.2.0-29"), []);
    host.run("ip link del par0");
}

#[test]
fn the_address_after_a_refused_one_is_held_by_an_agent() {
    let Some(node) = Node::new("whereabouts-probe-agent") else {
        return;
    };
    let _other = other_host(&node, &["10.211.3.2/28"]);
    let name = node.world.namespace.clone();
    let agent = agent(&node);
    let ipam = json!({"range": "10.211.3.0/28", "probe": true});
    let (_first, first) = node.pod("first", &ipam);
    first.add().result();
    let held = (String::from("2"), format!("braid:{name}"));
    let pool = "10.211.3.0-28";
    await_true("a held address", || node.entries(pool).contains(&held));
    let (_second, second) = node.pod("second", &ipam);
    let answer = second.add();
    assert!(
        answer.stderr.contains("10.211.3.2 is used"),
        "{}",
        answer.stderr
    );
    assert_ne!(addresses(&answer.result()), ["10.211.3.2/28"]);
    await_true("the release of the refused address", || {
        !ids(&node, pool).contains(&"2".to_owned())
    });
    let (_third, third) = node.pod("third", &ipam);
    let answer = third.add();
    assert!(!answer.stderr.contains("another host"), "{}", answer.stderr);
    answer.result();
    end(&[&first, &second, &third]);
    agent.stop();
    assert_eq!(node.entries(pool), []);
    let reservation = node.get("overlappingrangeipreservations", "10.211.3.2");
    assert_eq!(reservation, None, "in {NAMESPACE}");
    node.world.sandbox.host().run("ip link del other0");
}
