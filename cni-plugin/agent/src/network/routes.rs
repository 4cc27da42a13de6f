//! Routes to the pods of other nodes: the desired ones, and the changes that lead to them.

use crate::cluster::node::Node;
use crate::cluster::ranges::Accepted;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter};
use std::net::IpAddr;

/// `rtm_protocol` of the agent's routes. The agent changes no route of another protocol. Numbers
/// from 64 on are free for programs, and iproute2's table of names does not have this one.
pub const PROTOCOL: u8 = 98;

/// A route in the main table, owned by the agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Pods of the other node.
    pub dst: IpNet,
    /// Address of the other node.
    pub via: IpAddr,
    /// Index of the link.
    pub link: u32,
}

/// The kernel's answer for the address of another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The address is on a link of this node.
    OnLink(u32),
    /// The address is behind a router or on a point-to-point link.
    Elsewhere,
    /// No route.
    Unreachable,
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

/// Returns the addresses to look up for the routes.
pub fn gateways(accepted: &[Accepted<'_>]) -> BTreeSet<IpAddr> {
    let mut gateways = BTreeSet::new();
    for Accepted { node, range } in accepted {
        gateways.extend(gateway(node, range));
    }
    gateways
}

/// Returns the address of `node` through which packets to `range` are sent. A next hop of another
/// family is possible for IPv4 packets only (Linux 5.2).
fn gateway(node: &Node, range: &IpNet) -> Option<IpAddr> {
    let via = node.gateway_of(range)?;
    (via.is_ipv6() || matches!(range, IpNet::V4(_))).then_some(via)
}

/// Returns a direct route for each range of a node on a shared link.
pub fn direct(
    accepted: &[Accepted<'_>],
    lookups: &BTreeMap<IpAddr, Lookup>,
) -> (BTreeSet<Route>, Vec<Unrouted>) {
    let (mut routes, mut unrouted) = (BTreeSet::new(), Vec::new());
    for Accepted { node, range } in accepted {
        let reason = match gateway(node, range) {
            None => "the node has no InternalIP of the range's family",
            Some(via) => match lookups.get(&via) {
                Some(Lookup::OnLink(link)) => {
                    routes.insert(Route {
                        dst: *range,
                        via,
                        link: *link,
                    });
                    continue;
                }
                Some(Lookup::Elsewhere) => "the node's InternalIP is not on a link of this node",
                Some(Lookup::Unreachable) | None => "no route to the node's InternalIP",
            },
        };
        unrouted.push(Unrouted {
            node: node.name.clone(),
            range: *range,
            reason,
        });
    }
    (routes, unrouted)
}

/// A change of one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Adds a route. A route of another program to the same range stays.
    Add(Route),
    /// Replaces the agent's own route to the same range.
    Replace(Route),
    /// Deletes the agent's own route.
    Delete(Route),
}

/// Returns the changes from `present` to `desired`. Routes are set first, so that a range that
/// became part of a larger one stays reachable.
pub fn changes(present: &BTreeSet<Route>, desired: &BTreeSet<Route>) -> Vec<Change> {
    let kept: BTreeSet<IpNet> = desired.iter().map(|route| route.dst).collect();
    let own: BTreeSet<IpNet> = present.iter().map(|route| route.dst).collect();
    let mut changes = Vec::new();
    for route in desired.difference(present) {
        changes.push(if own.contains(&route.dst) {
            Change::Replace(route.clone())
        } else {
            Change::Add(route.clone())
        });
    }
    for route in present.difference(desired) {
        // The kernel replaces the route of an equal range.
        if !kept.contains(&route.dst) {
            changes.push(Change::Delete(route.clone()));
        }
    }
    changes
}

/// Returns the range of an added route that another program has; `None` for other changes.
pub fn taken(change: &Change, accepted: &[Accepted<'_>]) -> Option<Unrouted> {
    let Change::Add(route) = change else {
        return None;
    };
    let owner = accepted
        .iter()
        .find(|accepted| accepted.range == route.dst)?;
    Some(Unrouted {
        node: owner.node.name.clone(),
        range: route.dst,
        reason: "another program has a route to the range",
    })
}

impl Display for Change {
    /// Prints the command that an administrator would type.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (word, Route { dst, via, link }) = match self {
            Self::Add(route) => ("add", route),
            Self::Replace(route) => ("replace", route),
            Self::Delete(route) => ("del", route),
        };
        let family = match (dst, via) {
            (IpNet::V4(_), IpAddr::V6(_)) => "inet6 ",
            _ => "",
        };
        write!(
            f,
            "ip route {word} {dst} via {family}{via} dev if{link} proto {PROTOCOL}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a range")
    }

    fn addr(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn route(dst: &str, via: &str, link: u32) -> Route {
        Route {
            dst: net(dst),
            via: addr(via),
            link,
        }
    }

    fn node(name: &str, addresses: &[&str]) -> Node {
        Node {
            name: name.into(),
            uid: name.into(),
            created: 0,
            ranges: Vec::new(),
            addresses: addresses.iter().map(|text| addr(text)).collect(),
        }
    }

    #[test]
    fn each_family_goes_through_its_own_address_and_ipv4_also_through_ipv6() {
        let [both, six, four] = [
            node("both", &["10.99.0.1", "fd99::1"]),
            node("six", &["fd99::2"]),
            node("four", &["10.99.0.3"]),
        ];
        let accepted = [
            (&both, "10.1.0.0/24"),
            (&both, "fd01::/64"),
            (&six, "10.2.0.0/24"),
            (&four, "fd03::/64"),
        ]
        .map(|(node, range)| Accepted {
            node,
            range: net(range),
        });
        let lookups = gateways(&accepted)
            .into_iter()
            .map(|via| (via, Lookup::OnLink(7)))
            .collect();
        let (routes, unrouted) = direct(&accepted, &lookups);
        let expected = [
            route("10.1.0.0/24", "10.99.0.1", 7),
            route("10.2.0.0/24", "fd99::2", 7),
            route("fd01::/64", "fd99::1", 7),
        ];
        assert_eq!(routes, BTreeSet::from(expected));
        assert_eq!(
            unrouted,
            [Unrouted {
                node: "four".into(),
                range: net("fd03::/64"),
                reason: "the node has no InternalIP of the range's family",
            }]
        );
    }

    #[test]
    fn a_node_behind_a_router_gets_no_direct_route() {
        let far = node("far", &["10.98.0.1"]);
        let accepted = [Accepted {
            node: &far,
            range: net("10.1.0.0/24"),
        }];
        for (lookup, reason) in [
            (
                Lookup::Elsewhere,
                "the node's InternalIP is not on a link of this node",
            ),
            (Lookup::Unreachable, "no route to the node's InternalIP"),
        ] {
            let (routes, unrouted) =
                direct(&accepted, &BTreeMap::from([(addr("10.98.0.1"), lookup)]));
            assert_eq!((routes.len(), unrouted[0].reason), (0, reason));
        }
    }

    #[test]
    fn only_differences_become_changes_and_routes_are_set_before_others_are_deleted() {
        let [same, moved, gone, new] = [
            route("10.1.0.0/24", "10.99.0.1", 7),
            route("10.2.0.0/24", "10.99.0.2", 7),
            route("10.3.0.0/24", "10.99.0.3", 7),
            route("10.4.0.0/24", "10.99.0.4", 7),
        ];
        let elsewhere = Route {
            via: addr("10.99.0.22"),
            ..moved.clone()
        };
        let present = BTreeSet::from([same.clone(), moved, gone]);
        let desired = BTreeSet::from([same, elsewhere, new]);
        let changes: Vec<String> = changes(&present, &desired)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            changes,
            [
                "ip route replace 10.2.0.0/24 via 10.99.0.22 dev if7 proto 98",
                "ip route add 10.4.0.0/24 via 10.99.0.4 dev if7 proto 98",
                "ip route del 10.3.0.0/24 via 10.99.0.3 dev if7 proto 98",
            ]
        );
    }
}
