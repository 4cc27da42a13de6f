//! A plan as the commands that an administrator would type, one line a step.
//!
//! The container's namespace is written `pod`. The same text is the dry run, the golden file and the error's subject.

mod nft;

use super::ladder::Queue;
use super::link::{Link, LinkAttr, LinkKind, LinkRef};
use super::redirect::{self, Instruction};
use super::shaping::{Rate, Shaper, Shaping};
use super::step::{Addr, Ns, Route, Step, Sysctl, Vlan};
use super::xsk::XskGuard;
use std::fmt;
use std::fmt::Write;

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<5}", self.ns().to_string())?;
        match self {
            Self::AddLink(link) | Self::EnsureLink(link) => add_link(f, link),
            Self::DelLink(at) => write!(f, "ip link del {}", at.name),
            Self::SetLink { at, to, .. } | Self::EnsureAttr { at, to } => set_link(f, at, to),
            Self::EnsureVlan { at, vlan } => write!(f, "bridge vlan add dev {} {}", at.name, VlanText(vlan)),
            Self::DelVlan { at, vlan } => write!(f, "bridge vlan del dev {} vid {}", at.name, vlan.id),
            Self::AddAddr(addr) | Self::EnsureAddr(addr) => self::addr(f, "add", addr),
            Self::DelAddr(addr) => self::addr(f, "del", addr),
            Self::AddRoute(route) => self::route(f, "prepend", route),
            Self::DelRoute(route) => self::route(f, "del", route),
            Self::SetSysctl(sysctl) | Self::EnsureSysctl(sysctl) => set_sysctl(f, sysctl),
            Self::RestoreReferenceTuning { at, file } => write!(f, "# give {} back what {file} notes", at.name),
            Self::AddShaping(shaping) => add_shaping(f, shaping),
            Self::DelShaping(shaping) => del_shaping(f, shaping),
            Self::AddRedirect { from, to } => add_redirect(f, from, to),
            Self::DelRedirect { from, .. } => {
                write!(f, "tc filter del dev {} ingress pref {}", from.name, redirect::preference(from.ns))
            }
            Self::AddXskGuard(XskGuard { owner, .. }) => {
                write!(f, "# let AF_XDP sockets of {owner:?} have no link (braid_xsk_bind)")
            }
            Self::NarrowXskGuard { guard, at, .. } => {
                write!(f, "# let AF_XDP sockets of {:?} have links other than {}", guard.owner, at.name)
            }
            Self::DelXskGuard(XskGuard { owner, .. }) | Self::DelXskGuardsOf(owner) => {
                write!(f, "# let AF_XDP sockets of {owner:?} send again")
            }
            Self::WaitUp(at) => write!(f, "# wait until {} is operationally up", at.name),
            Self::WaitDad(at) => write!(f, "# wait until no address of {} is tentative", at.name),
            _ => self.fmt_nft(f),
        }
    }
}

impl Step {
    /// Where the step acts.
    pub fn ns(&self) -> Ns {
        match self {
            Self::AddLink(link) | Self::EnsureLink(link) => link.at.ns,
            Self::DelLink(at)
            | Self::SetLink { at, .. }
            | Self::EnsureAttr { at, .. }
            | Self::EnsureVlan { at, .. }
            | Self::DelVlan { at, .. }
            | Self::RestoreReferenceTuning { at, .. }
            | Self::WaitUp(at)
            | Self::WaitDad(at)
            | Self::DelPacketGuard(at) => at.ns,
            Self::AddRedirect { from, .. } | Self::DelRedirect { from, .. } => from.ns,
            Self::AddAddr(addr) | Self::EnsureAddr(addr) | Self::DelAddr(addr) => addr.at.ns,
            Self::AddRoute(route) | Self::DelRoute(route) => route.at.ns,
            Self::AddPacketGuard(guard) => guard.at.ns,
            Self::SetSysctl(sysctl) | Self::EnsureSysctl(sysctl) => sysctl.ns,
            Self::AddMasquerade(_)
            | Self::DelMasquerade(_)
            | Self::DelMasqueradesOf(_)
            | Self::DelReferenceMasquerade { .. }
            | Self::DelReferenceMacCheck { .. }
            | Self::DelReferencePorts { .. }
            | Self::AddHostPorts(_)
            | Self::DelHostPorts(_)
            | Self::DelHostPortsOf(_)
            | Self::AddFirewall(_)
            | Self::DelFirewall(_)
            | Self::DelFirewallOf(_)
            | Self::DelReferenceFirewall { .. }
            | Self::AddXskGuard(_)
            | Self::NarrowXskGuard { .. }
            | Self::DelXskGuard(_)
            | Self::DelXskGuardsOf(_)
            | Self::AddMacCheck(_)
            | Self::DelMacCheck(_) => Ns::Host,
            Self::AddShaping(shaping) | Self::DelShaping(shaping) => {
                shaping.links().next().map_or(Ns::Host, |at| at.ns)
            }
        }
    }
}

fn add_redirect(f: &mut fmt::Formatter<'_>, from: &LinkRef, to: &LinkRef) -> fmt::Result {
    let (filter, preference) = (redirect::filter(from.ns), redirect::preference(from.ns));
    write!(f, "tc qdisc add dev {0} clsact; tc filter add dev {0} ingress pref {preference} bpf ", from.name)?;
    write!(f, "bytecode '{}", filter.len())?;
    for Instruction { code, jumps: [holds, fails], value } in filter {
        write!(f, ",{code} {holds} {fails} {value}")?;
    }
    write!(f, "' action mirred egress redirect dev {}", to.name)
}

/// `tc` of each place; the rate is the program's, whose map no command writes.
fn add_shaping(f: &mut fmt::Formatter<'_>, shaping: &Shaping) -> fmt::Result {
    let program = |at: &LinkRef, hook: &str| {
        format!("tc qdisc add dev {0} clsact; tc filter add dev {0} {hook} pref 1 bpf da obj braid.o", at.name)
    };
    let mut places = Vec::new();
    for shaper in &shaping.shapers {
        let Rate { bps, burst } = shaper.rate;
        let queue = queue(shaper);
        let line = if shaper.queue.has_program() {
            format!("{}; {queue} # {bps} bit/s, burst {burst} bit", program(&shaper.at, "egress"))
        } else {
            queue
        };
        places.push(line);
    }
    places.extend(shaping.guard.iter().map(|at| program(at, "ingress")));
    if let (Some(last), Some(subnets)) = (places.last_mut(), &shaping.subnets) {
        let nets = subnets.nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let _ = write!(last, " # {} {nets}", if subnets.only { "only" } else { "all but" });
    }
    in_places(f, shaping, &places)
}

fn queue(shaper: &Shaper) -> String {
    let (name, kind) = (&shaper.at.name, shaper.queue.kind());
    let root = format!("tc qdisc replace dev {name} root handle 1: {kind}");
    let bucket = format!("{root} rate {}bit burst {} limit", shaper.rate.bps, shaper.bucket());
    match shaper.queue {
        Queue::Fq | Queue::Htb => root,
        Queue::TbfPfifoFast => {
            let bucket = format!("{root} rate {}bit burst {}", shaper.rate.bps, shaper.bucket_of_large());
            format!("{bucket} limit 1; tc qdisc add dev {name} parent 1:1 pfifo_fast")
        }
        Queue::Tbf => format!("{bucket} {}", shaper.bucket_queue()),
        Queue::TbfFqCodel => {
            let target = format!("fq_codel target {}us", shaper.codel_target_ns() / 1000);
            format!("{bucket} {}; tc qdisc add dev {name} parent 1:1 {target}", shaper.bucket_queue())
        }
    }
}

fn del_shaping(f: &mut fmt::Formatter<'_>, shaping: &Shaping) -> fmt::Result {
    let mut lines = Vec::new();
    for shaper in &shaping.shapers {
        let root = format!("tc qdisc del dev {} root", shaper.at.name);
        let filter = format!("; tc filter del dev {} egress pref 1", shaper.at.name);
        lines.push(root + if shaper.queue.has_program() { &filter } else { "" });
    }
    lines.extend(shaping.guard.iter().map(|at| format!("tc filter del dev {} ingress pref 1", at.name)));
    in_places(f, shaping, &lines)
}

/// One line for each link, each behind its namespace, as lines of a plan are.
fn in_places(f: &mut fmt::Formatter<'_>, shaping: &Shaping, lines: &[String]) -> fmt::Result {
    for (number, (at, line)) in shaping.links().zip(lines).enumerate() {
        match number {
            0 => f.write_str(line)?,
            _ => write!(f, "\n{:<5}{line}", at.ns.to_string())?,
        }
    }
    Ok(())
}

fn add_link(f: &mut fmt::Formatter<'_>, link: &Link) -> fmt::Result {
    f.write_str("ip link add")?;
    if let LinkKind::Macvlan { parent, .. } | LinkKind::Ipvlan { parent, .. } = &link.kind {
        write!(f, " link {}", parent.name)?;
        if parent.ns != link.at.ns {
            write!(f, " # of {}\n     ", parent.ns)?;
        }
    }
    write!(f, " name {}", link.at.name)?;
    if let Some(mac) = link.mac {
        write!(f, " address {mac}")?;
    }
    if let Some(mtu) = link.mtu {
        write!(f, " mtu {mtu}")?;
    }
    if let Some(master) = &link.master {
        write!(f, " master {master}")?;
    }
    if link.up {
        f.write_str(" up")?;
    }
    // Each end of a veth has one of each: see `rtnl::link`.
    let queues = " numtxqueues 1 numrxqueues 1";
    if matches!(link.kind, LinkKind::Veth { .. }) {
        f.write_str(queues)?;
    }
    write!(f, " type {}", link.kind.name())?;
    match &link.kind {
        LinkKind::Veth { peer, peer_mac } => {
            write!(f, " peer name {}", peer.name)?;
            if let Some(mac) = peer_mac {
                write!(f, " address {mac}")?;
            }
            if let Some(mtu) = link.mtu {
                write!(f, " mtu {mtu}")?;
            }
            f.write_str(queues)?;
            if peer.ns == link.at.ns { Ok(()) } else { write!(f, " netns {}", peer.ns) }
        }
        LinkKind::Bridge { vlan_filtering: true } => f.write_str(" vlan_filtering 1"),
        LinkKind::Macvlan { mode, bc_queue_len, .. } => {
            write!(f, " mode {}", mode.name())?;
            bc_queue_len.map_or(Ok(()), |len| write!(f, " bcqueuelen {len}"))
        }
        LinkKind::Ipvlan { mode, .. } => write!(f, " mode {}", mode.name()),
        LinkKind::Bridge { .. } | LinkKind::Ifb | LinkKind::Other(_) => Ok(()),
    }
}

fn set_link(f: &mut fmt::Formatter<'_>, at: &LinkRef, to: &LinkAttr) -> fmt::Result {
    let on_off = |on: bool| if on { "on" } else { "off" };
    match to {
        LinkAttr::Up(true) => write!(f, "ip link set {} up", at.name),
        LinkAttr::Up(false) => write!(f, "ip link set {} down", at.name),
        LinkAttr::Mac(mac) | LinkAttr::Announce(mac) => write!(f, "ip link set {} address {mac}", at.name),
        LinkAttr::Mtu(mtu) => write!(f, "ip link set {} mtu {mtu}", at.name),
        LinkAttr::Promisc(on) => write!(f, "ip link set {} promisc {}", at.name, on_off(*on)),
        LinkAttr::AllMulti(on) => write!(f, "ip link set {} allmulticast {}", at.name, on_off(*on)),
        LinkAttr::TxQueueLen(len) => write!(f, "ip link set {} txqueuelen {len}", at.name),
        LinkAttr::GsoMaxSize(size) => write!(f, "ip link set {} gso_max_size {size}", at.name),
        LinkAttr::Alias(text) => write!(f, "ip link set {} alias {text:?}", at.name),
        LinkAttr::Hairpin(on) => write!(f, "bridge link set dev {} hairpin {}", at.name, on_off(*on)),
        LinkAttr::ArpNotify(on) => write!(f, "sysctl -w net/ipv4/conf/{}/arp_notify={}", at.name, u8::from(*on)),
        LinkAttr::Isolated(on) => write!(f, "bridge link set dev {} isolated {}", at.name, on_off(*on)),
    }
}

struct VlanText<'a>(&'a Vlan);

impl fmt::Display for VlanText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vid {}", self.0.id)?;
        f.write_str(if self.0.pvid { " pvid" } else { "" })?;
        f.write_str(if self.0.untagged { " untagged" } else { "" })
    }
}

fn addr(f: &mut fmt::Formatter<'_>, verb: &str, addr: &Addr) -> fmt::Result {
    write!(f, "ip addr {verb} {} dev {}", addr.net, addr.at.name)?;
    if verb == "add" && addr.broadcast().is_some() {
        write!(f, " brd +")?;
    }
    f.write_str(if addr.no_prefix_route { " noprefixroute" } else { "" })?;
    f.write_str(if addr.no_dad && addr.net.addr().is_ipv6() { " nodad" } else { "" })
}

fn route(f: &mut fmt::Formatter<'_>, verb: &str, route: &Route) -> fmt::Result {
    const MAIN: u32 = 254;
    write!(f, "ip route {verb} {}", route.dst)?;
    if let Some(gw) = route.gw {
        write!(f, " via {gw}")?;
    }
    write!(f, " dev {}", route.at.name)?;
    if let Some(src) = route.src {
        write!(f, " src {src}")?;
    }
    match route.scope {
        0 => {}
        253 => f.write_str(" scope link")?,
        254 => f.write_str(" scope host")?,
        scope => write!(f, " scope {scope}")?,
    }
    if route.table != MAIN {
        write!(f, " table {}", route.table)?;
    }
    for (word, value) in [("metric", route.priority), ("mtu", route.mtu), ("advmss", route.advmss)] {
        if let Some(value) = value {
            write!(f, " {word} {value}")?;
        }
    }
    Ok(())
}

fn set_sysctl(f: &mut fmt::Formatter<'_>, sysctl: &Sysctl) -> fmt::Result {
    write!(f, "sysctl -w {}={}", sysctl.key, sysctl.value)
}

/// The whole plan, one line a step.
pub fn render(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{step}");
    }
    text
}
