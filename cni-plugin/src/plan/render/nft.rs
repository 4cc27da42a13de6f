//! What changes nf_tables, and what eBPF leads beside it.

use super::super::condition::{digest, text};
use super::super::hostport::{HostPort, HostPorts, Rewrite, Target, Way};
use super::super::nft::{Firewall, Gate, Isolation, MacCheck, Masquerade, PacketGuard, PacketLimit};
use super::super::step::{Ns, Step};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

impl Step {
    /// What changes nf_tables.
    pub(super) fn fmt_nft(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddMasquerade(what) => masquerade(f, "add", what),
            Self::DelMasquerade(what) => masquerade(f, "delete", what),
            Self::DelMasqueradesOf(owner) => {
                write!(f, "# nft delete every element of inet braid with comment {owner:?}")
            }
            Self::DelReferencePorts { container_id, .. } => {
                write!(f, "# delete what the reference plugin made to lead host ports to {container_id}")
            }
            Self::DelReferenceMasquerade { container_id, ifname, .. } => {
                write!(f, "# delete what the reference plugin made to masquerade {container_id} {ifname}")
            }
            Self::DelReferenceMacCheck { container_id, ifname } => {
                write!(
                    f,
                    "# delete what the reference plugin made to check hardware addresses of {container_id} {ifname}"
                )
            }
            Self::AddMacCheck(check) => mac_check(f, "add", check),
            Self::DelMacCheck(check) => mac_check(f, "delete", check),
            Self::AddPacketGuard(guard) => packet_guard(f, guard),
            Self::DelPacketGuard(at) => write!(f, "nft delete table netdev braid-{}", at.name),
            Self::AddHostPorts(all) => host_ports(f, "add", all),
            Self::DelHostPorts(all) => host_ports(f, "delete", all),
            Self::DelHostPortsOf(owner) => {
                write!(f, "# delete every host port of inet braid and of /sys/fs/bpf/braid of {owner:?}")
            }
            Self::AddFirewall(all) => firewall(f, "add", all),
            Self::DelFirewall(all) => firewall(f, "delete", all),
            Self::DelFirewallOf(owner) => {
                write!(f, "# nft delete every forwarded address of inet braid with comment {owner:?}")
            }
            Self::DelReferenceFirewall { addrs, .. } => {
                let addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
                write!(f, "# delete what the reference plugin made to forward {}", addrs.join(" and "))
            }
            _ => Ok(()),
        }
    }
}

/// One command for each element, of which there is one for each port and for each address whose clients are rewritten.
fn host_ports(f: &mut fmt::Formatter<'_>, verb: &str, all: &HostPorts) -> fmt::Result {
    let family = |addr: &IpAddr| if addr.is_ipv4() { '4' } else { '6' };
    let mut lines = Vec::new();
    let mut element = |set: String, key: String, means: String| {
        let more = if verb == "add" { format!(" comment {:?}{means}", all.owner) } else { String::new() };
        lines.push(format!("nft {verb} element inet braid hostport{set} '{{ {key}{more} }}'"));
    };
    for HostPort { at, to } in &all.ports {
        let service = format!("{} . {}", at.protocol.name(), at.port);
        let is_any = at.addr.is_unspecified();
        let (any, key) = if is_any { ("-any", service) } else { ("", format!("{} . {service}", at.addr)) };
        let family = family(&at.addr);
        if at.conditional {
            let chain = format!("hostport{family}-if{any}-{}", digest(all.conditions.of(at.addr.is_ipv4())));
            element(format!("{family}-if{any}"), key.clone(), format!(" : jump {chain}"));
        }
        let to_map = if at.conditional { "-to" } else { "" };
        element(format!("{family}{to_map}{any}"), key, format!(" : {} . {}", to.ip(), to.port()));
    }
    let led: BTreeSet<_> = all.ports.iter().map(|port| (port.to, port.at.protocol)).collect();
    for (to, protocol) in led {
        let key = format!("{} . {} . {}", to.ip(), protocol.name(), to.port());
        element(format!("{}-led", family(&to.ip())), key, String::new());
    }
    for Target { addr, rewrite } in &all.targets {
        if *rewrite == Rewrite::Own {
            element(format!("{}-own", family(addr)), format!("{addr} . {addr}"), String::new());
        }
        element(format!("{}-source", family(addr)), addr.to_string(), format!(" : goto {}", rewrite.chain()));
    }
    lines.extend(all.way().into_iter().flat_map(|way| by_ebpf(verb, all, way)));
    lines.extend(all.at_loopback().map(|HostPort { at, to }| {
        let to = if verb == "add" { format!("to {to}") } else { "nowhere".to_owned() };
        format!("# map /sys/fs/bpf/braid/v3/*/loopback_ports: {at} leads {to} from [::1]")
    }));
    for (is_v4, family) in [(true, '4'), (false, '6')] {
        let conditions = all.conditions.of(is_v4);
        if verb == "add" && all.ports.iter().any(|port| port.at.conditional && port.at.addr.is_ipv4() == is_v4) {
            let chain = format!("hostport{family}-if*-{}", digest(conditions));
            lines.push(format!("# chain {chain} leads who meets: {}", text(conditions)));
        }
    }
    commands(f, &lines)
}

/// One command for each element.
fn firewall(f: &mut fmt::Formatter<'_>, verb: &str, all: &Firewall) -> fmt::Result {
    let mut lines = Vec::new();
    let comment = if verb == "add" { format!(" comment {:?}", all.owner) } else { String::new() };
    for addr in &all.addrs {
        let family = if addr.is_ipv4() { '4' } else { '6' };
        lines.push(format!("nft {verb} element inet braid firewall{family} '{{ {addr}{comment} }}'"));
    }
    if let Some(Isolation { bridge, within }) = &all.isolation {
        let sets = ["isolated-by", "isolated-within-by"].into_iter().take(1 + usize::from(*within));
        for (set, addr) in sets.flat_map(|set| all.addrs.iter().map(move |addr| (set, addr))) {
            let addr = match addr {
                IpAddr::V4(addr) => addr.to_ipv6_mapped(),
                IpAddr::V6(addr) => *addr,
            };
            lines.push(format!("nft {verb} element inet braid {set} '{{ {bridge} . {addr}{comment} }}'"));
        }
        lines.push(match verb {
            "add" => format!("nft add element inet braid isolated '{{ {bridge} }}'  # and the pairs"),
            _ => format!("# unless somebody else wants it: nft delete element inet braid isolated '{{ {bridge} }}'"),
        });
    }
    match &all.gate {
        Gate::Firewalld { zone } => {
            let verb = if verb == "add" { "add" } else { "remove" };
            let sources = all.addrs.iter().map(|addr| format!("firewall-cmd --zone={zone} --{verb}-source={addr}"));
            lines.extend(sources);
        }
        Gate::Chains { admin } if verb == "add" => {
            lines.push(format!("# chains that drop what is forwarded let braid's mark through, behind {admin}"));
            let tables = all.legacy.iter().map(|table| format!("# where {table} drops that: {}", table.insert(1)));
            lines.extend(tables);
        }
        Gate::Chains { .. } => {}
    }
    commands(f, &lines)
}

/// Several commands of one step, on the host.
fn commands(f: &mut fmt::Formatter<'_>, lines: &[String]) -> fmt::Result {
    for (number, line) in lines.iter().enumerate() {
        match number {
            0 => f.write_str(line)?,
            _ => write!(f, "\n{:<5}{line}", Ns::Host.to_string())?,
        }
    }
    Ok(())
}

/// `tc` of the links that run the programs for this container; the map's elements, which no command writes in words.
fn by_ebpf(verb: &str, all: &HostPorts, way: &Way) -> Vec<String> {
    let mut lines = Vec::new();
    if verb == "add" {
        for at in way.links() {
            let filter = |hook: &str, program: &str| {
                format!(
                    "; tc filter replace dev {} {hook} pref 2842 bpf da pinned /sys/fs/bpf/braid/v3/*/{program}",
                    at.name
                )
            };
            let is_port = way.bridge.is_some() && *at == way.link;
            let egress = if is_port { String::new() } else { filter("egress", "hp_out") };
            lines.push(format!("tc qdisc add dev {} clsact{}{egress}", at.name, filter("ingress", "hp_in")));
        }
    }
    for HostPort { at, to } in all.by_ebpf() {
        let link = &way.link.name;
        lines.push(match verb {
            "add" => format!("# map /sys/fs/bpf/braid/v3/*/host_ports: {at} leads to {to} by {link}"),
            _ => format!("# map /sys/fs/bpf/braid/v3/*/host_ports: {at} leads nowhere"),
        });
    }
    lines
}

fn masquerade(f: &mut fmt::Formatter<'_>, verb: &str, what: &Masquerade) -> fmt::Result {
    let map = if what.source.is_ipv4() { "masquerade4" } else { "masquerade6" };
    write!(f, "nft {verb} element inet braid {map} {{ {}", what.source)?;
    if verb == "add" {
        let chain = format!("outside-{}", what.network.trunc()).replace(':', "_");
        write!(f, " comment {:?} : goto {chain}", what.owner)?;
    }
    f.write_str(" }")
}

fn packet_guard(f: &mut fmt::Formatter<'_>, guard: &PacketGuard) -> fmt::Result {
    let (PacketLimit { rate, burst }, link) = (guard.limit, &guard.at.name);
    write!(f, "nft 'table netdev braid-{link} {{ chain held {{ ")?;
    write!(f, "limit rate over {rate} bytes/second burst {burst} bytes counter drop; }}; chain out {{ ")?;
    write!(f, "type filter hook egress device \"{link}\" priority 0; meta rtclassid >= 0 accept; ")?;
    let (only, nets) = guard.subnets.as_ref().map_or((false, &[][..]), |subnets| (subnets.only, &subnets.nets));
    for net in nets {
        let is_ip = if net.addr().is_ipv4() { "@ll,96,16 0x0800 " } else { "@ll,96,16 0x86dd " };
        let (before, verdict) = if only { ("", "goto held") } else { (is_ip, "accept") };
        write!(f, "{before}{} {verdict}; ", destination(net))?;
    }
    f.write_str(if only { "@nh,0,4 4 accept; @nh,0,4 6 accept; " } else { "" })?;
    f.write_str("goto held; }; }'")
}

/// What tells an IP packet for a subnet by its bytes alone.
fn destination(net: &IpNet) -> String {
    let len = u32::from(net.prefix_len());
    let (version, at, prefix) = match net {
        IpNet::V4(net) => (4, 128, u128::from(net.network().to_bits()).checked_shr(32 - len)),
        IpNet::V6(net) => (6, 192, net.network().to_bits().checked_shr(128 - len)),
    };
    let prefix = prefix.filter(|_| len > 0).map(|prefix| format!(" @nh,{at},{len} {prefix:#x}"));
    format!("@nh,0,4 {version}{}", prefix.unwrap_or_default())
}

fn mac_check(f: &mut fmt::Formatter<'_>, verb: &str, check: &MacCheck) -> fmt::Result {
    write!(f, "nft {verb} element bridge braid allowed {{ {:?} . {} }}", check.port.as_str(), check.mac)
}
