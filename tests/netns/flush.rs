//! What is left of an attachment when somebody flushes nf_tables, and what the next call makes of that.

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

/// The rules without what differs between two times that they are made.
fn rules(host: &Sandbox) -> Vec<String> {
    let listed = host.run("nft list ruleset");
    let mut lines: Vec<String> = listed.lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

const FLUSHES: [&str; 3] = ["nft flush ruleset", "nft flush table inet braid", "nft delete table bridge braid"];

#[test]
fn the_next_call_puts_back_what_was_flushed() {
    for flush in FLUSHES {
        for by in ["ADD", "STATUS", "GC"] {
            let host = Sandbox::new();
            let outside = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
            let (a, b) = (host.pod("a"), host.pod("b"));
            let mapping = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
            let call = host.call("braid", &a, network()).with("runtimeConfig", json!({"portMappings": mapping}));
            let result = call.add().result();
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
            assert_eq!(state::elements(&host), Vec::<String>::new(), "{flush}, {by}");
        }
    }
}
