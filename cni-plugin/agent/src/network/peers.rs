//! The desired state: how packets reach the pods of each other node.

use super::routes::{Desired, Dev, Fdb, Lookup, Neighbour, Route, Rule, State, Table};
use super::vxlan::{Underlay, Vxlan};
use crate::cluster::config::Mode;
use crate::cluster::node::Node;
use crate::cluster::ranges::Accepted;
use braid_core::name::Mac;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Answers of the kernel by address.
pub type Lookups = BTreeMap<IpAddr, Lookup>;

/// A direct path to a range of another node, as probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Network address of the range. It is an address of the other node's VXLAN link.
    pub address: IpAddr,
    /// `InternalIP` of the other node.
    pub via: IpAddr,
    /// Index of the link that both nodes share.
    pub link: u32,
}

/// Values on which the desired state depends, beside the answers of probes.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// Mode of traffic between nodes.
    pub mode: Mode,
    /// This node.
    pub own: &'a Node,
    /// Ranges of this node's pods.
    pub ranges: &'a [IpNet],
    /// The VXLAN link; `None` in modes without one.
    pub link: Option<Vxlan>,
    /// Returns the MAC of another node's VXLAN link; `None` if it is not known.
    pub mac: fn(&Node) -> Option<Mac>,
    /// Ranges of other nodes.
    pub accepted: &'a [Accepted<'a>],
    /// Answers of the kernel for [`addresses`].
    pub lookups: &'a Lookups,
}

/// An accepted range without a route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unrouted {
    /// Name of the node.
    pub node: String,
    /// Range of its pods.
    pub range: IpNet,
    /// Reason, for the log.
    pub reason: &'static str,
}

/// Path to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    /// Through the node's `InternalIP` on a shared link.
    Direct(Target),
    /// Through the VXLAN link.
    Vxlan,
}

/// Returns the addresses to look up.
pub fn addresses(accepted: &[Accepted<'_>]) -> BTreeSet<IpAddr> {
    let mut addresses = BTreeSet::new();
    for Accepted { node, range } in accepted {
        addresses.extend(gateway(node, range));
        addresses.extend(underlay_address(node));
    }
    addresses
}

/// Returns the address of `node` through which packets to `range` are sent directly. A next hop of
/// another family is possible for IPv4 packets only (Linux 5.2).
fn gateway(node: &Node, range: &IpNet) -> Option<IpAddr> {
    let via = node.gateway_of(range)?;
    (via.is_ipv6() || matches!(range, IpNet::V4(_))).then_some(via)
}

fn underlay_address(node: &Node) -> Option<IpAddr> {
    Underlay::of(&node.addresses)?.first(&node.addresses)
}

/// Returns the direct paths to probe: in mode `auto`, those to all nodes on shared links.
pub fn targets(situation: &Situation<'_>) -> BTreeSet<Target> {
    let mut targets = BTreeSet::new();
    if situation.mode == Mode::Auto {
        let pods = pod_ranges(situation);
        for accepted in situation.accepted {
            targets.extend(direct(situation, accepted, &pods).ok());
        }
    }
    // An own range has an own address to send from.
    let is_ipv4 = |address: IpAddr| address.is_ipv4();
    targets.retain(|target| {
        let mut own = situation.ranges.iter();
        own.any(|range| is_ipv4(range.addr()) == is_ipv4(target.address))
    });
    targets
}

/// Returns the desired state, and the ranges without a route. `passing` are the targets with
/// answered probes.
pub fn desired(situation: &Situation<'_>, passing: &BTreeSet<Target>) -> (Desired, Vec<Unrouted>) {
    let (mut state, mut unrouted) = (State::default(), Vec::new());
    if situation.link.is_some() {
        for range in situation.ranges {
            state.addresses.insert(range.network());
        }
    }
    for target in targets(situation) {
        state.routes.insert(Route {
            table: Table::Probes,
            dst: IpNet::from(target.address),
            via: target.via,
            dev: Dev::Index(target.link),
        });
    }
    if situation.mode == Mode::Auto {
        for from in &state.addresses {
            state.rules.insert(Rule { from: *from });
        }
    }
    let pods = pod_ranges(situation);
    for accepted in situation.accepted {
        if situation.mode == Mode::None {
            break;
        }
        let tunnel = tunnel(situation, accepted.node, &pods);
        let direct = direct(situation, accepted, &pods);
        // flanneld makes no entries for a node that it reaches directly.
        let is_left_out = situation.mode == Mode::Flannel && direct.is_ok();
        if let Ok(end) = &tunnel
            && !is_left_out
        {
            reach_by_vxlan(&mut state, accepted, end);
        }
        match path(situation.mode, direct, tunnel, passing) {
            Ok(path) => {
                state.routes.insert(route(accepted.range, path));
            }
            Err(reason) => unrouted.push(Unrouted {
                node: accepted.node.name.clone(),
                range: accepted.range,
                reason,
            }),
        }
    }
    let link = situation.link;
    (Desired { link, state }, unrouted)
}

/// Adds the entries by which the VXLAN link reaches the range. In mode `auto` they exist also while
/// its route is direct, so that the route alone decides.
fn reach_by_vxlan(state: &mut State, accepted: &Accepted<'_>, end: &Fdb) {
    let Fdb { mac, dst } = *end;
    state.fdb.insert(Fdb { mac, dst });
    state.neighbours.insert(Neighbour {
        dst: accepted.range.network(),
        mac,
    });
}

fn route(dst: IpNet, path: Path) -> Route {
    let (via, dev) = match path {
        Path::Direct(Target { via, link, .. }) => (via, Dev::Index(link)),
        Path::Vxlan => (dst.network(), Dev::Vxlan),
    };
    Route {
        table: Table::Main,
        dst,
        via,
        dev,
    }
}

fn path(
    mode: Mode,
    direct: Result<Target, &'static str>,
    tunnel: Result<Fdb, &'static str>,
    passing: &BTreeSet<Target>,
) -> Result<Path, &'static str> {
    match mode {
        Mode::None => Err("the mode is none"),
        Mode::Direct => direct.map(Path::Direct),
        Mode::Vxlan => tunnel.map(|_| Path::Vxlan),
        Mode::Flannel => match direct {
            Ok(target) => Ok(Path::Direct(target)),
            Err(_) => tunnel.map(|_| Path::Vxlan),
        },
        Mode::Auto => match (direct, tunnel) {
            (Ok(target), Ok(_)) if passing.contains(&target) => Ok(Path::Direct(target)),
            // The only path needs no probe.
            (Ok(target), Err(_)) => Ok(Path::Direct(target)),
            (_, tunnel) => tunnel.map(|_| Path::Vxlan),
        },
    }
}

/// Returns the direct path to the range.
fn direct(
    situation: &Situation<'_>,
    accepted: &Accepted<'_>,
    pods: &BTreeMap<IpAddr, IpNet>,
) -> Result<Target, &'static str> {
    let Accepted { node, range } = accepted;
    let via = gateway(node, range).ok_or("the node has no InternalIP of the range's family")?;
    // The packets would go to a pod.
    if is_of_pods(via, pods) {
        return Err(OF_PODS);
    }
    match situation.lookups.get(&via) {
        Some(Lookup::OnLink(link)) => Ok(Target {
            address: range.network(),
            via,
            link: *link,
        }),
        Some(Lookup::Elsewhere) => Err("the node's InternalIP is not on a link of this node"),
        Some(Lookup::Own) => Err(DUPLICATE),
        Some(Lookup::Unreachable) | None => Err("no route to the node's InternalIP"),
    }
}

const OF_PODS: &str = "the node's InternalIP is in a range of pods";
const DUPLICATE: &str = "the node's InternalIP is an address of this node";

/// Returns the other end of the tunnel to the node. An unreachable one is kept: while the uplink is
/// down, nothing is gained by a change.
fn tunnel(
    situation: &Situation<'_>,
    node: &Node,
    pods: &BTreeMap<IpAddr, IpNet>,
) -> Result<Fdb, &'static str> {
    if situation.link.is_none() {
        return Err("there is no VXLAN link");
    }
    let underlay = Underlay::of(&node.addresses).ok_or("the node has no InternalIP")?;
    if Some(underlay) != Underlay::of(&situation.own.addresses) {
        return Err("one of the two nodes has an IPv4 InternalIP, the other has not");
    }
    let address = underlay
        .first(&node.addresses)
        .ok_or("the node has no InternalIP")?;
    if situation.lookups.get(&address) == Some(&Lookup::Own) {
        return Err(DUPLICATE);
    }
    // VXLAN packets to such an address would be sent into the link again.
    if is_of_pods(address, pods) {
        return Err(OF_PODS);
    }
    let mac = (situation.mac)(node).ok_or("the node has no MAC of a VXLAN link")?;
    Ok(Fdb { mac, dst: address })
}

fn is_of_pods(address: IpAddr, pods: &BTreeMap<IpAddr, IpNet>) -> bool {
    let before = pods.range(..=address).next_back();
    before.is_some_and(|(_, range)| range.contains(&address))
}

/// Returns the ranges of all pods by first address. They do not overlap.
fn pod_ranges(situation: &Situation<'_>) -> BTreeMap<IpAddr, IpNet> {
    let mut ranges = BTreeMap::new();
    for range in situation.ranges {
        ranges.insert(range.network(), *range);
    }
    for accepted in situation.accepted {
        ranges.insert(accepted.range.network(), accepted.range);
    }
    ranges
}
