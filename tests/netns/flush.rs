//! Repair of braid's nf_tables rules by the next call, after nf_tables was flushed.

use crate::conf;
use braid_tests::{Call, Sandbox, Service, Transport, Value, json, state};

fn network() -> Value {
    let mut bridge = conf::bridge();
    bridge["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    bridge["ipMasq"] = json!(true);
    bridge["macspoofchk"] = json!(true);
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let firewall = json!({"type": "firewall", "ingressPolicy": "same-bridge"});
    json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [bridge, portmap, firewall]})
}

/// Returns the lines of the nf_tables ruleset, sorted, so that their order does not matter.
fn rules(host: &Sandbox) -> Vec<String> {
    let listed = host.run("nft list ruleset");
    let mut lines: Vec<String> = listed.lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

const FLUSHES: [&str; 3] = [
    "nft flush ruleset",
    "nft flush table inet braid",
    "nft delete table bridge braid",
];

#[test]
fn the_next_call_restores_flushed_rules() {
    for flush in FLUSHES {
        for by in ["ADD", "STATUS", "GC"] {
            let host = Sandbox::new();
            let outside = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
            let (a, b) = (host.pod("a"), host.pod("b"));
            let mapping = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
            let call = host
                .call("braid", &a, network())
                .with("runtimeConfig", json!({"portMappings": mapping}));
            let result = call.add().result();
            // STATUS records in braid's state that nothing is missing in nf_tables.
            call.status().ok();
            let before = rules(&host);
            host.run(flush);
            assert_ne!(rules(&host), before, "{flush}");
            let other: Call = host.call("braid", &b, network());
            match by {
                "ADD" => {
                    let result = other.add().result();
                    other.prev(&result).del().ok();
                }
                "STATUS" => other.status().ok(),
                _ => other.gc(&[("a", "eth0")]).ok(),
            }
            assert_eq!(rules(&host), before, "{flush}, {by}");
            call.check(&result).ok();
            let _service = Service::start(&a, Transport::Tcp, 80);
            let led = outside.ask(Transport::Tcp, "192.0.2.1:8080");
            assert_eq!(led, Ok("192.0.2.2".parse().unwrap()), "{flush}, {by}");
            call.prev(&result).del().ok();
            assert_eq!(
                state::elements(&host),
                Vec::<String>::new(),
                "{flush}, {by}"
            );
        }
    }
}

#[test]
fn an_incomplete_repair_is_completed_by_the_next_call() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("braid", &pod, network());
    let result = call.add().result();
    call.status().ok();
    let before = rules(&host);
    // A call leaves the table in this state if it is killed, or if it finds the table half deleted.
    host.run("nft flush chain inet braid whole");
    host.run("nft delete element inet braid masquerade4 { 10.1.0.2 }");
    host.run("nft delete element inet braid firewall4 { 10.1.0.2 }");
    call.status().ok();
    assert_eq!(rules(&host), before);
    call.prev(&result).del().ok();
}

#[test]
fn rules_of_another_interface_of_the_container_are_restored_too() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let first = host.call("braid", &pod, network());
    let result = first.add().result();
    host.run("nft flush ruleset");
    let mut other = network();
    other["plugins"][0]["bridge"] = json!("br1");
    other["plugins"][0]["ipam"] = json!({"type": "host-local", "subnet": "10.2.0.0/24"});
    other["name"] = json!("other");
    let second = host.call("braid", &pod, other).ifname("eth1");
    let of_second = second.add().result();
    first.check(&result).ok();
    second.prev(&of_second).del().ok();
    first.prev(&result).del().ok();
    assert_eq!(state::elements(&host), Vec::<String>::new());
}

#[test]
fn rules_of_a_terminated_container_are_not_restored() {
    let host = Sandbox::new();
    let mut one = network();
    one["plugins"][0]["ipam"] = json!({"type": "host-local",
        "ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.2", "rangeEnd": "10.1.0.2"}]]});
    let (dead, living) = (host.pod("b"), host.pod("a"));
    let first = host.call("braid", &dead, one.clone());
    first.add().result();
    host.end(&dead);
    let second = host.call("braid", &living, one);
    let result = second.add().result();
    host.run("nft flush ruleset");
    // The rules are restored even if STATUS has a warning.
    let answer = second.status();
    answer.ok();
    assert!(
        answer.stderr.contains("no IP addresses"),
        "{}",
        answer.stderr
    );
    let elements = state::elements(&host).join("\n");
    assert!(
        elements.contains("net a eth0") && !elements.contains("net b eth0"),
        "{elements}"
    );
    first.del().ok();
    second.check(&result).ok();
    second.prev(&result).del().ok();
    assert_eq!(state::elements(&host), Vec::<String>::new());
}

#[test]
fn gc_keeps_listed_attachments_with_long_names() {
    for len in [50, 59, 60, 62, 63] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let id = "f".repeat(64);
        let mut conf = network();
        conf["name"] = json!("n".repeat(len));
        let call = host.call("braid", &pod, conf).container(&id);
        let result = call.add().result();
        let before = state::elements(&host);
        call.gc(&[(&id, "eth0")]).ok();
        assert_eq!(state::elements(&host), before, "{len}");
        call.check(&result).ok();
        call.prev(&result).del().ok();
        assert_eq!(state::elements(&host), Vec::<String>::new(), "{len}");
    }
}

#[test]
fn a_node_can_begin_with_many_ports() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let mapping = |port: u16| json!({"hostPort": port, "containerPort": port, "protocol": "tcp"});
    let mappings: Vec<Value> = (1000..1600).map(mapping).collect();
    let call = host
        .call("braid", &pod, network())
        .with("runtimeConfig", json!({"portMappings": mappings}));
    let result = call.add().result();
    call.prev(&result).del().ok();
    assert_eq!(state::elements(&host), Vec::<String>::new());
}
