//! `firewall` on a node with rules of iptables-legacy. nf_tables does not list these rules.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};
use std::rc::Rc;

fn list() -> Value {
    let mut bridge = conf::bridge();
    bridge["ipam"] = json!({"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]});
    json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [bridge, {"type": "firewall"}]})
}

/// Creates a machine outside the host that has routes to the containers.
fn outside(host: &Sandbox) -> Rc<Ns> {
    let outside = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    host.run("ip addr add fd00:9::1/64 dev world nodad");
    outside.run("ip addr add fd00:9::2/64 dev world nodad");
    outside.run("ip route add 10.1.0.0/24 via 192.0.2.1");
    outside.run("ip -6 route add fd00:1::/64 via fd00:9::1");
    outside
}

fn reaches(pod: &Ns) -> [bool; 2] {
    [pod.can_ping("192.0.2.2"), pod.can_ping("fd00:9::2")]
}

/// Arguments of iptables and ip6tables that create rules which drop forwarded packets.
const DROPPERS: [&[&str]; 6] = [
    &["-P FORWARD DROP"],
    &["-A FORWARD -i lo -j ACCEPT", "-A FORWARD -j DROP"],
    &["-A FORWARD -j REJECT"],
    &[
        "-N LAST",
        "-A LAST -i lo -j RETURN",
        "-A LAST -j DROP",
        "-A FORWARD -j LAST",
    ],
    &["-A FORWARD -j REJECT", "-A FORWARD -i lo -j ACCEPT"],
    &["-t mangle -P FORWARD DROP", "-P FORWARD DROP"],
];

fn rules(host: &Ns, program: &str) -> String {
    ["filter", "mangle"]
        .map(|table| host.run(&format!("{program} -w -t {table} -S FORWARD")))
        .concat()
}

fn drop_all(host: &Ns, dropper: &[&str]) {
    for program in ["iptables-legacy", "ip6tables-legacy"] {
        for rule in dropper {
            host.run(&format!("{program} -w {rule}"));
        }
    }
}

#[test]
fn a_container_reaches_the_world_past_drop_rules_of_iptables_legacy() {
    needs!(IptablesLegacy);
    for dropper in DROPPERS {
        let host = Sandbox::new();
        let _outside = outside(&host);
        drop_all(&host, dropper);
        let (a, b) = (host.pod("a"), host.pod("b"));
        let attach = |pod: &Ns| {
            let call = host.call("braid", pod, list());
            let result = call.add().result();
            (call, result)
        };
        let (first, result) = attach(&a);
        assert_eq!(reaches(&a), [true, true], "{dropper:?}");
        first.check(&result).ok();
        let opened = ["iptables-legacy", "ip6tables-legacy"].map(|program| rules(&host, program));
        let (second, _) = attach(&b);
        assert_eq!(
            ["iptables-legacy", "ip6tables-legacy"].map(|program| rules(&host, program)),
            opened,
            "{dropper:?}"
        );
        let tables = dropper
            .iter()
            .filter(|rule| rule.contains("FORWARD") && !rule.ends_with("ACCEPT"))
            .count();
        assert_eq!(
            opened[0].matches("0x1000/0x1000").count(),
            tables,
            "{dropper:?}"
        );
        first.del().ok();
        second.del().ok();
        host.assert_nothing_left();
        // Packets that are not of a container are still dropped.
        a.run("ip link add eth0 type veth peer name veth-own");
        assert_eq!(reaches(&a), [false, false]);
    }
}

#[test]
fn check_reports_a_missing_legacy_rule_and_the_next_add_restores_it() {
    needs!(IptablesLegacy);
    let host = Sandbox::new();
    drop_all(&host, DROPPERS[0]);
    let pod = host.pod("a");
    let call = host.call("braid", &pod, list());
    let result = call.add().result();
    host.run("iptables-legacy -w -F FORWARD");
    call.check(&result).refused(
        999,
        &["iptables-legacy -t filter FORWARD drops packets with braid's mark"],
    );
    call.del().ok();
    call.add().result();
    assert!(rules(&host, "iptables-legacy").contains("0x1000"));
}

#[test]
fn legacy_rules_that_do_not_drop_are_not_changed() {
    needs!(IptablesLegacy);
    let host = Sandbox::new();
    drop_all(
        &host,
        &[
            "-A FORWARD -i nowhere -j DROP",
            "-A INPUT -j DROP",
            "-P INPUT DROP",
        ],
    );
    let before = rules(&host, "iptables-legacy");
    let pod = host.pod("a");
    let answer = host.call("braid", &pod, list()).add();
    answer.result();
    assert_eq!(
        (rules(&host, "iptables-legacy"), answer.stderr.as_str()),
        (before, "")
    );
}

#[test]
fn add_fails_if_legacy_rules_drop_and_cannot_be_changed() {
    needs!(IptablesLegacy);
    let host = Sandbox::new();
    drop_all(&host, DROPPERS[0]);
    let pod = host.pod("a");
    let call: Call = host.call("braid", &pod, list());
    // This hides iptables-legacy in this sandbox only. One program serves all tables.
    let program = std::fs::canonicalize("/usr/sbin/iptables-legacy").unwrap();
    let none: Option<&str> = None;
    nix::mount::mount(
        Some("/dev/null"),
        &program,
        none,
        nix::mount::MsFlags::MS_BIND,
        none,
    )
    .unwrap();
    call.add().refused(999, &["iptables-legacy"]);
    assert_eq!(pod.link_names(), Vec::<String>::new());
    host.assert_nothing_left();
}
