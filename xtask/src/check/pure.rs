//! Purity: modules that decide name nothing that reads or changes the host.

use super::Violation;
use super::source::{Name, Source, is_below};

/// Modules that decide, from the crate's root. Their tests may do what they like.
const PURE: &[&str] = &[
    "cni",
    "k8s",
    "plan",
    "plugins",
    "ipam::configuration",
    "ipam::range",
    "ipam::static_ip",
    "ipam::host_local::allocator",
];

/// What they must not name, as the beginning of a path; a final `*` stands for the rest of the word.
const EFFECTS: &[&str] = &[
    "std::env",
    "std::fs",
    "std::os::fd",
    "std::os::unix::fs",
    "std::os::unix::net",
    "std::process",
    "std::thread",
    "libc",
    "netlink_*",
    "nix",
    "tokio",
];

/// Types of sockets and clocks, wherever they stand in a path.
const EFFECT_TYPES: &[&str] =
    &["Instant", "SystemTime", "TcpListener", "TcpStream", "UdpSocket", "UnixDatagram", "UnixListener", "UnixStream"];

/// The crates that plan/ may name beside std: addresses.
const CRATES_OF_PLAN: &[&str] = &["ipnet", "serde"];

/// The places where a pure module names an effect.
pub(super) fn violations(source: &Source) -> Vec<Violation> {
    let pure = source.names.iter().filter(|name| PURE.iter().any(|part| is_below(&name.module, part)));
    let impure = pure.filter(|name| is_effect(&name.segments));
    impure.map(|name| violation(source, name, "is pure, and names")).collect()
}

/// The places where a file of plan/ names one of braid's `dependencies`, those for addresses excepted.
pub(super) fn foreign_crates(source: &Source, dependencies: &[String]) -> Vec<Violation> {
    let is_foreign = |name: &&Name| {
        let [krate, _, ..] = &name.segments[..] else { return false };
        dependencies.contains(krate) && !CRATES_OF_PLAN.contains(&krate.as_str())
    };
    let foreign = source.names.iter().filter(is_foreign);
    foreign.map(|name| violation(source, name, "needs nothing but std and addresses, and names")).collect()
}

/// The dependencies of a manifest, as the code spells them.
pub(super) fn dependencies(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let names = lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split(['.', '=', ' ']).next());
    names.filter(|name| !name.is_empty() && !name.starts_with('#')).map(|name| name.replace('-', "_")).collect()
}

fn violation(source: &Source, name: &Name, what: &str) -> Violation {
    let rule = format!("{} {what} {}", name.module.join("::"), name.segments.join("::"));
    Violation { path: source.path.clone(), line: name.line, rule }
}

fn is_effect(path: &[String]) -> bool {
    let is_known = path.len() > 1 && EFFECTS.iter().any(|effect| is_below(path, effect));
    is_known || path.iter().any(|word| EFFECT_TYPES.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::parse(&format!("cni-plugin/src/{path}"), text).unwrap()
    }

    fn rules(violations: Vec<Violation>) -> Vec<String> {
        violations.into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_pure_module_that_reads_a_file_is_refused_with_its_line() {
        let source = source("plan/facts.rs", "\nuse std::{fmt, fs};\n");
        let rule = "plan::facts is pure, and names std::fs".to_owned();
        assert_eq!(violations(&source), [Violation { path: "cni-plugin/src/plan/facts.rs".into(), line: 2, rule }]);
    }

    #[test]
    fn clocks_sockets_and_netlink_are_found_behind_short_names() {
        let text =
            "use std::time; fn f() { time::Instant::now(); } use netlink_packet_route::link; use std::net::UdpSocket;";
        let rules = rules(violations(&source("plugins/bridge.rs", text)));
        let names: Vec<&str> = rules.iter().filter_map(|rule| rule.rsplit(' ').next()).collect();
        assert_eq!(names, ["time::Instant::now", "netlink_packet_route::link", "std::net::UdpSocket"]);
    }

    #[test]
    fn values_of_addresses_durations_and_paths_are_pure() {
        let text = "use std::{net::IpAddr, path::PathBuf, time::Duration}; fn env(fs: u8) -> u8 { fs }";
        assert_eq!(violations(&source("plan/step.rs", text)), []);
    }

    #[test]
    fn modules_at_the_edge_and_tests_may_have_effects() {
        assert_eq!(violations(&source("ipam/host_local/store.rs", "use std::fs;")), []);
        assert_eq!(violations(&source("plan/step.rs", "#[cfg(test)]\nmod tests { use std::fs; }")), []);
    }

    #[test]
    fn a_plan_names_address_types_and_no_other_crate() {
        let dependencies = dependencies(
            "[package]\nname = \"x\"\n\n[dependencies]\nipnet.workspace = true\n# c\nserde_json = \"1\"\nnetlink-packet-core = { path = \"x\" }\n\n[dev-dependencies]\ntempfile = \"3\"\n",
        );
        assert_eq!(dependencies, ["ipnet", "serde_json", "netlink_packet_core"]);
        let text = "use ipnet::IpNet; fn f(value: serde_json::Value) {}";
        let rules = rules(foreign_crates(&source("plan/step.rs", text), &dependencies));
        assert_eq!(rules, ["plan::step needs nothing but std and addresses, and names serde_json::Value"]);
    }
}
