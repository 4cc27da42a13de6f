//! Whether a step's effect is there, judged by the facts alone.

use super::facts::{Facts, LinkFact, Need, RouteFact};
use super::hostport::{HostPorts, Way};
use super::link::{Link, LinkKind, LinkRef};
use super::nft::PacketGuard;
use super::step::{Addr, Ns, Route, Step, Vlan};
use super::xsk::{Hold, XskGuard};

impl Step {
    /// What has to be read to judge the step.
    pub fn needs(&self) -> Vec<Need> {
        match self {
            Self::AddLink(link) | Self::EnsureLink(link) => link_needs(link),
            Self::DelLink(at)
            | Self::SetLink { at, .. }
            | Self::EnsureAttr { at, .. }
            | Self::WaitUp(at)
            | Self::WaitDad(at) => vec![Need::Link(at.clone())],
            Self::EnsureVlan { at, .. } | Self::DelVlan { at, .. } => vec![Need::Link(at.clone()), Need::Vlans],
            Self::AddAddr(addr) | Self::EnsureAddr(addr) | Self::DelAddr(addr) => vec![Need::Addrs(addr.at.clone())],
            Self::AddRoute(route) | Self::DelRoute(route) => {
                vec![Need::Link(route.at.clone()), Need::Routes(route.at.ns)]
            }
            Self::SetSysctl(sysctl) | Self::EnsureSysctl(sysctl) => vec![Need::Sysctl(sysctl.ns, sysctl.key.clone())],
            Self::DelReferenceMasquerade { .. }
            | Self::DelReferenceMacCheck { .. }
            | Self::DelReferencePorts { .. }
            | Self::RestoreReferenceTuning { .. }
            | Self::DelHostPortsOf(_)
            | Self::DelFirewall(_)
            | Self::DelFirewallOf(_)
            | Self::DelXskGuardsOf(_)
            | Self::DelReferenceFirewall { .. } => Vec::new(),
            Self::AddFirewall(firewall) => vec![Need::Firewall(firewall.clone())],
            Self::AddMasquerade(_) | Self::DelMasquerade(_) | Self::DelMasqueradesOf(_) => vec![Need::Masquerades],
            Self::AddMacCheck(_) | Self::DelMacCheck(_) => vec![Need::MacChecks],
            Self::AddHostPorts(all) | Self::DelHostPorts(all) => host_port_needs(all),
            Self::AddShaping(shaping) | Self::DelShaping(shaping) => {
                shaping.links().cloned().map(Need::Shaped).collect()
            }
            Self::AddPacketGuard(PacketGuard { at, .. }) | Self::DelPacketGuard(at) => {
                vec![Need::PacketGuard(at.clone())]
            }
            Self::AddXskGuard(_) | Self::DelXskGuard(_) => vec![Need::XskGuards],
            Self::NarrowXskGuard { at, .. } => vec![Need::XskGuards, Need::Link(at.clone())],
            Self::AddRedirect { from, to } | Self::DelRedirect { from, to } => {
                vec![Need::Shaped(from.clone()), Need::Link(to.clone())]
            }
        }
    }
}

fn host_port_needs(all: &HostPorts) -> Vec<Need> {
    let mut needs: Vec<Need> = all.ports.iter().map(|port| Need::HostPort(port.at)).collect();
    needs.extend(all.by_ebpf().map(|port| Need::EbpfPort(port.at)));
    needs.extend(all.way().into_iter().flat_map(Way::links).cloned().map(Need::HostPortHook));
    needs.extend(all.at_loopback().flat_map(|port| [Need::LoopbackPort(port.at), Need::LoopbackPrograms]));
    needs
}

fn link_needs(link: &Link) -> Vec<Need> {
    let mut needs = vec![Need::Link(link.at.clone())];
    match &link.kind {
        LinkKind::Veth { peer, .. } => needs.push(Need::Link(peer.clone())),
        LinkKind::Macvlan { parent, .. } | LinkKind::Ipvlan { parent, .. } => needs.push(Need::Link(parent.clone())),
        LinkKind::Bridge { .. } | LinkKind::Ifb | LinkKind::Other(_) => {}
    }
    needs.extend(link.master.clone().map(|master| Need::Link(LinkRef { ns: link.at.ns, name: master })));
    needs
}

/// `Ok` where the step's effect is there; otherwise what differs.
pub fn holds(step: &Step, facts: &Facts) -> Result<(), String> {
    match step {
        Step::AddLink(link) | Step::EnsureLink(link) => link_holds(link, facts),
        Step::DelLink(at) => refuse_if(facts.link(at).is_some(), || format!("link {at} is still there")),
        Step::SetLink { at, to, .. } | Step::EnsureAttr { at, to } => {
            let fact = found(at, facts)?;
            refuse_if(!fact.has(to), || format!("link {at} differs from {to:?}"))
        }
        Step::EnsureVlan { at, vlan } => {
            refuse_if(!has_vlan(facts, at, |found| found == vlan), || format!("VLAN {} is missing on {at}", vlan.id))
        }
        Step::DelVlan { at, vlan } => {
            refuse_if(has_vlan(facts, at, |v| v.id == vlan.id), || format!("VLAN {} is still on {at}", vlan.id))
        }
        Step::AddAddr(addr) | Step::EnsureAddr(addr) => addr_holds(addr, facts),
        Step::DelAddr(addr) => {
            refuse_if(addr_holds(addr, facts).is_ok(), || format!("address {} is still on {}", addr.net, addr.at))
        }
        Step::AddRoute(route) => route_holds(route, facts),
        Step::DelRoute(route) => {
            refuse_if(route_holds(route, facts).is_ok(), || format!("route {} is still there", route.dst))
        }
        Step::SetSysctl(sysctl) | Step::EnsureSysctl(sysctl) => {
            match facts.sysctls.get(&(sysctl.ns, sysctl.key.clone())) {
                // ADD was content without it, so it can't be what makes CHECK fail.
                _ if sysctl.optional => Ok(()),
                None => Err(format!("sysctl {} does not exist", sysctl.key)),
                // Several values are shown with tabs between them.
                Some(value) if value.split_whitespace().eq(sysctl.value.split_whitespace()) => Ok(()),
                Some(value) => Err(format!("sysctl {} is {value:?}, not {:?}", sysctl.key, sysctl.value)),
            }
        }
        Step::AddShaping(_)
        | Step::DelShaping(_)
        | Step::AddRedirect { .. }
        | Step::DelRedirect { .. }
        | Step::AddXskGuard(_)
        | Step::NarrowXskGuard { .. }
        | Step::DelXskGuard(_) => shaping_holds(step, facts),
        Step::WaitUp(at) => refuse_if(!found(at, facts)?.running, || format!("link {at} is not operationally up")),
        Step::WaitDad(_) | Step::RestoreReferenceTuning { .. } => Ok(()),
        _ => nft_holds(step, facts),
    }
}

fn has_vlan(facts: &Facts, at: &LinkRef, is_it: impl Fn(&Vlan) -> bool) -> bool {
    facts.vlans.get(&at.name).is_some_and(|vlans| vlans.iter().any(is_it))
}

fn shaping_holds(step: &Step, facts: &Facts) -> Result<(), String> {
    match step {
        Step::AddShaping(shaping) => shaping.holds(|at| facts.shaped.get(at).cloned().unwrap_or_default()),
        Step::DelShaping(shaping) => {
            let left = shaping.links().find(|at| facts.shaped.get(at).is_some_and(|fact| !fact.programs.is_empty()));
            left.map_or(Ok(()), |at| Err(format!("link {at} is still shaped")))
        }
        Step::AddRedirect { from, to } => {
            let there = is_redirected(from, to, facts);
            refuse_if(!there, || format!("what comes in from {from} does not leave through {to}"))
        }
        Step::DelRedirect { from, to } => {
            let there = is_redirected(from, to, facts);
            refuse_if(there, || format!("what comes in from {from} still leaves through {to}"))
        }
        // What an earlier version did below is not looked at.
        Step::AddXskGuard(guard) => {
            let is_free = guard.below.is_none() && hold_of(guard, facts).is_none();
            refuse_if(is_free, || "nothing holds AF_XDP sockets of the container".to_owned())
        }
        Step::NarrowXskGuard { guard, at, .. } => {
            let link = found(at, facts)?.index;
            let is_its = hold_of(guard, facts).is_some_and(|hold| hold.link == link);
            refuse_if(!is_its, || format!("AF_XDP sockets of the container can have link {at}"))
        }
        Step::DelXskGuard(guard) => {
            let is_held = hold_of(guard, facts).is_some();
            refuse_if(is_held, || "AF_XDP sockets of the container are still held".to_owned())
        }
        _ => Ok(()),
    }
}

fn hold_of<'a>(XskGuard { netns, owner, .. }: &XskGuard, facts: &'a Facts) -> Option<&'a Hold> {
    facts.xsk_guards.iter().find(|hold| hold.netns == *netns && hold.owner == *owner)
}

fn is_redirected(from: &LinkRef, to: &LinkRef, facts: &Facts) -> bool {
    let through = facts.shaped.get(from).and_then(|fact| fact.redirected_to);
    through.is_some() && through == facts.link(to).map(|fact| fact.index)
}

fn nft_holds(step: &Step, facts: &Facts) -> Result<(), String> {
    match step {
        Step::AddHostPorts(all) => {
            let own = all.own(&facts.host_ports);
            own.holds(&facts.host_ports)?;
            own.holds_in_ebpf(&facts.ebpf_ports, &facts.host_port_hooks)?;
            own.holds_at_loopback(&facts.loopback_ports, facts.has_loopback_programs)
        }
        Step::DelHostPorts(all) => {
            all.are_gone(&facts.host_ports)?;
            all.are_gone(&facts.ebpf_ports)?;
            all.are_gone(&facts.loopback_ports)
        }
        Step::AddFirewall(firewall) => {
            let missing = facts.firewalls.get(firewall).map(|missing| missing.join("; "));
            missing.filter(|missing| !missing.is_empty()).map_or(Ok(()), Err)
        }
        Step::AddMasquerade(what) => {
            let there = facts.masquerades.contains_key(&what.source);
            refuse_if(!there, || format!("{} is not masqueraded", what.source))
        }
        Step::DelMasquerade(what) => {
            let there = facts.masquerades.contains_key(&what.source);
            refuse_if(there, || format!("{} is still masqueraded", what.source))
        }
        Step::DelMasqueradesOf(owner) => {
            let there = facts.masquerades.values().any(|found| found == owner);
            refuse_if(there, || format!("sources of {owner:?} are still masqueraded"))
        }
        Step::AddMacCheck(check) => {
            let there = facts.mac_checks.get(&check.port) == Some(&check.mac);
            refuse_if(!there, || format!("port {} is not held to {}", check.port, check.mac))
        }
        Step::DelMacCheck(check) => {
            let there = facts.mac_checks.contains_key(&check.port);
            refuse_if(there, || format!("port {} is still held", check.port))
        }
        Step::AddPacketGuard(PacketGuard { at, limit, .. }) => match facts.packet_guards.get(at) {
            None => Err(format!("nothing limits what packet sockets send through link {at}")),
            Some(fact) => refuse_if(fact.limit != *limit, || {
                format!("packet sockets may send {:?} through link {at}, not {limit:?}", fact.limit)
            }),
        },
        Step::DelPacketGuard(at) => {
            let there = facts.packet_guards.contains_key(at);
            refuse_if(there, || format!("what packet sockets send through link {at} is still limited"))
        }
        _ => Ok(()),
    }
}

fn refuse_if(wrong: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if wrong { Err(why()) } else { Ok(()) }
}

fn found<'a>(at: &LinkRef, facts: &'a Facts) -> Result<&'a LinkFact, String> {
    facts.link(at).ok_or_else(|| format!("link {at} does not exist"))
}

fn link_holds(link: &Link, facts: &Facts) -> Result<(), String> {
    let fact = found(&link.at, facts)?;
    let kind = link.kind.name();
    refuse_if(fact.kind != kind, || format!("link {} is of kind {:?}, not {kind}", link.at, fact.kind))?;
    if let Some(master) = &link.master {
        let bridge = found(&LinkRef { ns: link.at.ns, name: master.clone() }, facts)?;
        refuse_if(fact.master != Some(bridge.index), || format!("link {} is no port of {master}", link.at))?;
    }
    match &link.kind {
        LinkKind::Veth { peer, .. } => {
            let other = found(peer, facts)?;
            refuse_if(other.kind != kind, || format!("link {peer} is of kind {:?}, not {kind}", other.kind))?;
            let paired = fact.parent == Some(other.index) && other.parent == Some(fact.index);
            refuse_if(!paired, || format!("links {} and {peer} are no pair", link.at))?;
        }
        LinkKind::Macvlan { mode, .. } => mode_holds(&link.at, fact, mode.name())?,
        LinkKind::Ipvlan { mode, .. } => mode_holds(&link.at, fact, mode.name())?,
        LinkKind::Bridge { .. } | LinkKind::Ifb | LinkKind::Other(_) => {}
    }
    refuse_if(link.up && !fact.up, || format!("link {} is down", link.at))?;
    // A shared bridge may have had an address before, and a later plugin may give the container's end another one.
    let fixed = link.at.ns == Ns::Host && !matches!(link.kind, LinkKind::Bridge { .. });
    match link.mac {
        Some(mac) if fixed && fact.mac != Some(mac) => Err(format!("link {} does not have address {mac}", link.at)),
        _ => Ok(()),
    }
}

fn mode_holds(at: &LinkRef, fact: &LinkFact, mode: &str) -> Result<(), String> {
    refuse_if(fact.mode != Some(mode), || {
        format!("link {at} has mode {:?}, not {mode}", fact.mode.unwrap_or("unknown"))
    })
}

fn addr_holds(addr: &Addr, facts: &Facts) -> Result<(), String> {
    let there = facts.addrs(&addr.at).iter().any(|fact| fact.net == addr.net);
    refuse_if(!there, || format!("address {} is missing on {}", addr.net, addr.at))
}

fn route_holds(route: &Route, facts: &Facts) -> Result<(), String> {
    let index = found(&route.at, facts)?.index;
    let same = |fact: &RouteFact| {
        fact.dst.trunc() == route.dst.trunc()
            && fact.link == Some(index)
            && fact.table == route.table
            && (route.gw.is_none() || fact.gw == route.gw)
            && (route.priority.is_none() || fact.priority == route.priority)
            && (route.mtu.is_none() || fact.mtu == route.mtu)
            && (route.advmss.is_none() || fact.advmss == route.advmss)
    };
    let there = facts.routes.get(&route.at.ns).is_some_and(|routes| routes.iter().any(same));
    refuse_if(!there, || format!("route {} through {} is missing in table {}", route.dst, route.at, route.table))
}
