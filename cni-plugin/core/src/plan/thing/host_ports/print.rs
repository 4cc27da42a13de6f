//! Commands that forward host ports to a container, for nf_tables and eBPF.

use super::super::condition::{digest, text};
use super::{EbpfPath, HostPort, HostPorts, Rewrite, Target, Verb};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Returns the commands that add or delete host ports. There is one element for each port, and one
/// for each container address with rewritten clients.
pub(super) fn commands(all: &HostPorts, verb: Verb) -> Vec<String> {
    let family = |addr: &IpAddr| if addr.is_ipv4() { '4' } else { '6' };
    let mut lines = Vec::new();
    let mut element = |set: String, key: String, means: String| {
        let more = if verb == Verb::Add {
            format!(" comment {:?}{means}", all.owner)
        } else {
            String::new()
        };
        lines.push(format!(
            "nft {} element inet braid hostport{set} '{{ {key}{more} }}'",
            verb.word("add", "delete")
        ));
    };
    for HostPort { at, to } in &all.ports {
        let service = format!("{} . {}", at.protocol.name(), at.port);
        let is_any = at.addr.is_unspecified();
        let (any, key) = if is_any {
            ("-any", service)
        } else {
            ("", format!("{} . {service}", at.addr))
        };
        let family = family(&at.addr);
        if at.conditional {
            let chain = format!(
                "hostport{family}-if{any}-{}",
                digest(all.conditions.of(at.addr.is_ipv4()))
            );
            element(
                format!("{family}-if{any}"),
                key.clone(),
                format!(" : jump {chain}"),
            );
        }
        let to_map = if at.conditional { "-to" } else { "" };
        element(
            format!("{family}{to_map}{any}"),
            key,
            format!(" : {} . {}", to.ip(), to.port()),
        );
    }
    let led: BTreeSet<_> = all
        .ports
        .iter()
        .map(|port| (port.to, port.at.protocol))
        .collect();
    for (to, protocol) in led {
        let key = format!("{} . {} . {}", to.ip(), protocol.name(), to.port());
        element(format!("{}-led", family(&to.ip())), key, String::new());
    }
    for Target { addr, rewrite } in &all.targets {
        if *rewrite == Rewrite::Own {
            element(
                format!("{}-own", family(addr)),
                format!("{addr} . {addr}"),
                String::new(),
            );
        }
        element(
            format!("{}-source", family(addr)),
            addr.to_string(),
            format!(" : goto {}", rewrite.chain()),
        );
    }
    lines.extend(
        all.way()
            .into_iter()
            .flat_map(|way| by_ebpf(verb, all, way)),
    );
    lines.extend(all.at_loopback().map(|HostPort { at, to }| {
        let change = match verb {
            Verb::Add => format!("add {at} -> {to}"),
            Verb::Del => format!("delete {at}"),
        };
        format!("# map /sys/fs/bpf/braid/v3/*/loopback_ports: {change} from [::1]")
    }));
    for (is_v4, family) in [(true, '4'), (false, '6')] {
        let conditions = all.conditions.of(is_v4);
        if verb == Verb::Add
            && all
                .ports
                .iter()
                .any(|port| port.at.conditional && port.at.addr.is_ipv4() == is_v4)
        {
            let chain = format!("hostport{family}-if*-{}", digest(conditions));
            lines.push(format!(
                "# chain {chain} forwards packets that match: {}",
                text(conditions)
            ));
        }
    }
    lines
}

/// Returns the `tc` commands for the links that run the eBPF programs. Changes of the eBPF map are
/// comments, because no command can write the map's elements in words.
fn by_ebpf(verb: Verb, all: &HostPorts, way: &EbpfPath) -> Vec<String> {
    let mut lines = Vec::new();
    if verb == Verb::Add {
        for at in way.links() {
            let filter = |hook: &str, program: &str| {
                format!(
                    "; tc filter replace dev {} {hook} pref 2842 bpf da pinned /sys/fs/bpf/braid/v3/*/{program}",
                    at.name
                )
            };
            let is_port = way.bridge.is_some() && *at == way.link;
            let egress = if is_port {
                String::new()
            } else {
                filter("egress", "hp_out")
            };
            lines.push(format!(
                "tc qdisc add dev {} clsact{}{egress}",
                at.name,
                filter("ingress", "hp_in")
            ));
        }
    }
    for HostPort { at, to } in all.by_ebpf() {
        let link = &way.link.name;
        lines.push(match verb {
            Verb::Add => {
                format!("# map /sys/fs/bpf/braid/v3/*/host_ports: add {at} -> {to} through {link}")
            }
            Verb::Del => format!("# map /sys/fs/bpf/braid/v3/*/host_ports: delete {at}"),
        });
    }
    lines
}
