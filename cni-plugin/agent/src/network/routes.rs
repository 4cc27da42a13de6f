//! State of the agent in the kernel for traffic to other nodes: routes, neighbours, FDB entries,
//! rules, and the addresses of the VXLAN link.

use super::vxlan::{Found, Name, Vxlan};
use braid_core::name::Mac;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::fmt::Formatter;
use std::net::IpAddr;

/// `rtm_protocol` of the agent's routes, rules and neighbours. The agent changes none of another
/// protocol. Numbers from 64 on are free for programs, and iproute2's table of names does not have
/// this one.
pub const PROTOCOL: u8 = 98;
/// Routing table of probes.
pub const PROBE_TABLE: u8 = 98;
/// Priority of the rules that lead to [`PROBE_TABLE`]: before the main table's 32766.
pub const PROBE_PRIORITY: u32 = 4626;

/// Routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// The main table.
    Main,
    /// [`PROBE_TABLE`].
    Probes,
}

/// Link of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dev {
    /// The VXLAN link. Its index changes when it is created again.
    Vxlan,
    /// Index of another link.
    Index(u32),
}

/// A route, owned by the agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Table.
    pub table: Table,
    /// Pods of the other node; in the table of probes, the address that answers.
    pub dst: IpNet,
    /// Address of the other node, or the network address of its range on the VXLAN link.
    pub via: IpAddr,
    /// Link.
    pub dev: Dev,
}

/// A permanent neighbour on the VXLAN link: the MAC of the other node's link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// Network address of a range of the other node.
    pub dst: IpAddr,
    /// MAC of its VXLAN link.
    pub mac: Mac,
}

/// A permanent FDB entry of the VXLAN link: the underlay address of the other node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fdb {
    /// MAC of the other node's VXLAN link.
    pub mac: Mac,
    /// `InternalIP` of the other node.
    pub dst: IpAddr,
}

/// A rule that sends packets between network addresses through [`PROBE_TABLE`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Network address of an own range.
    pub from: IpAddr,
}

/// Desired state, or the agent's own part of the present one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Addresses of the VXLAN link.
    pub addresses: BTreeSet<IpAddr>,
    /// FDB entries of the VXLAN link.
    pub fdb: BTreeSet<Fdb>,
    /// Neighbours on the VXLAN link.
    pub neighbours: BTreeSet<Neighbour>,
    /// Rules of both families.
    pub rules: BTreeSet<Rule>,
    /// Routes of both families and tables.
    pub routes: BTreeSet<Route>,
}

/// Desired link and state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// The VXLAN link, if the mode has one.
    pub link: Option<Vxlan>,
    /// All else.
    pub state: State,
}

/// Present link and state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Present {
    /// Name of the VXLAN link.
    pub name: Name,
    /// The link with this name.
    pub link: Option<Found>,
    /// Ranges with a route that flanneld may have made. The agent replaces it.
    pub of_flanneld: BTreeSet<IpNet>,
    /// Everything else, with the FDB entries of other programs, see [`Present::own_fdb`].
    pub state: State,
}

impl Present {
    /// Returns the agent's own FDB entries. The kernel stores no owner for them, so an entry is the
    /// agent's if its MAC is that of one of the agent's neighbours, present or desired. On flannel's
    /// links all are.
    pub fn own_fdb(&self, desired: &State) -> BTreeSet<Fdb> {
        if self.name.is_flannels() {
            return self.state.fdb.clone();
        }
        let neighbours = self.state.neighbours.iter().chain(&desired.neighbours);
        let mut macs: BTreeSet<Mac> = neighbours.map(|neighbour| neighbour.mac).collect();
        macs.extend(desired.fdb.iter().map(|entry| entry.mac));
        let entries = self.state.fdb.iter();
        entries
            .filter(|entry| macs.contains(&entry.mac))
            .cloned()
            .collect()
    }
}

/// The kernel's answer for the address of another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The address is on a link of this node.
    OnLink(u32),
    /// The address is behind a router or on a point-to-point link.
    Elsewhere,
    /// The address is one of this node's own.
    Own,
    /// No route.
    Unreachable,
}

/// Returns `-6` for the commands that need it.
fn family_option(address: IpAddr) -> &'static str {
    if address.is_ipv6() { " -6" } else { "" }
}

impl Route {
    /// Prints `ip route <verb> …`. `link` is the VXLAN link.
    pub(super) fn print(&self, verb: &str, link: Name, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { dst, via, .. } = self;
        let option = family_option(dst.addr());
        let other = match (dst, via) {
            (IpNet::V4(_), IpAddr::V6(_)) => "inet6 ",
            _ => "",
        };
        write!(f, "ip{option} route {verb} {dst} via {other}{via} dev ")?;
        match self.dev {
            Dev::Vxlan => write!(f, "{link} onlink")?,
            Dev::Index(index) => write!(f, "if{index}")?,
        }
        if self.table == Table::Probes {
            write!(f, " table {PROBE_TABLE}")?;
        }
        write!(f, " proto {PROTOCOL}")
    }
}

impl Rule {
    /// Prints `ip rule <verb> …`.
    pub(super) fn print(&self, verb: &str, f: &mut Formatter<'_>) -> std::fmt::Result {
        let from = self.from;
        let option = family_option(from);
        write!(
            f,
            "ip{option} rule {verb} pref {PROBE_PRIORITY} from {from} lookup {PROBE_TABLE} \
             proto {PROTOCOL}"
        )
    }
}

impl Neighbour {
    /// Prints `ip neigh <verb> …` on the VXLAN link.
    pub(super) fn print(&self, verb: &str, link: Name, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (dst, mac) = (self.dst, self.mac);
        write!(
            f,
            "ip neigh {verb} {dst} lladdr {mac} dev {link} nud permanent protocol {PROTOCOL}"
        )
    }
}

impl Fdb {
    /// Prints `bridge fdb <verb> …` on the VXLAN link.
    pub(super) fn print(&self, verb: &str, link: Name, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (dst, mac) = (self.dst, self.mac);
        write!(
            f,
            "bridge fdb {verb} {mac} dev {link} dst {dst} self permanent"
        )
    }
}
