//! Decisions about traffic between nodes, printed as the commands of an administrator.

use super::changes::{Command, changes};
use super::peers::{Lookups, Situation, Target, Unrouted, addresses, desired, targets};
use super::routes::{Desired, Fdb, Lookup, Neighbour, Present, State};
use super::vxlan::{Found, Vxlan, mac};
use crate::cluster::config::{self, Mode};
use crate::cluster::flannel::Annotations;
use crate::cluster::node::Node;
use crate::cluster::ranges::Accepted;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn node(name: &str, ranges: &[&str], addresses: &[&str]) -> Node {
    let parsed = ranges.iter().map(|text| Ok(text.parse().expect("a range")));
    Node {
        name: name.into(),
        uid: name.into(),
        created: 0,
        ranges: parsed.collect(),
        addresses: addresses.iter().map(|text| addr(text)).collect(),
        is_network_unavailable: false,
        flannel: Annotations::default(),
    }
}

/// A cluster seen from its first node. Addresses of `192.0.2.0/24` and `fd99::/64` are on link 7;
/// others are behind a router.
struct Cluster {
    mode: Mode,
    nodes: Vec<Node>,
}

impl Cluster {
    fn new(mode: Mode, nodes: &[Node]) -> Self {
        let nodes = nodes.to_vec();
        Self { mode, nodes }
    }

    /// Returns the decision if all targets in `passing` pass.
    fn desired(&self, passing: &[Target]) -> (Desired, Vec<Unrouted>) {
        self.decide(|situation| desired(situation, &passing.iter().copied().collect()))
    }

    fn targets(&self) -> Vec<Target> {
        self.decide(|situation| targets(situation).into_iter().collect())
    }

    fn decide<T>(&self, decide: impl Fn(&Situation<'_>) -> T) -> T {
        let own = &self.nodes[0];
        let ranges: Vec<IpNet> = own.ranges.iter().flatten().copied().collect();
        let mut accepted = Vec::new();
        for node in &self.nodes[1..] {
            for range in node.ranges.iter().flatten() {
                let range = *range;
                accepted.push(Accepted { node, range });
            }
        }
        let mut lookups = Lookups::new();
        for address in addresses(&accepted) {
            let text = address.to_string();
            let lookup = if own.addresses.contains(&address) {
                Lookup::Own
            } else if text.starts_with("192.0.2.") || text.starts_with("fd99::") {
                Lookup::OnLink(7)
            } else {
                Lookup::Elsewhere
            };
            lookups.insert(address, lookup);
        }
        let link = match self.mode {
            Mode::Auto | Mode::Vxlan => Vxlan::of(own, config::Vxlan::default(), 1500),
            Mode::Direct | Mode::Flannel | Mode::None => None,
        };
        decide(&Situation {
            mode: self.mode,
            own,
            ranges: &ranges,
            link,
            mac: |node| Some(mac(&node.name)),
            accepted: &accepted,
            lookups: &lookups,
        })
    }
}

/// Returns the state after a decision was carried out.
pub(super) fn carried_out(desired: &Desired) -> Present {
    let found = |link: Vxlan| Found {
        index: 9,
        kind: "vxlan".into(),
        settings: Some(link.settings),
        mac: Some(link.mac),
        mtu: link.mtu,
        is_up: true,
    };
    Present {
        link: desired.link.map(found),
        state: desired.state.clone(),
        ..Present::default()
    }
}

fn printed(present: &Present, desired: &Desired) -> Vec<String> {
    let mut commands = Vec::new();
    for change in changes(present, desired) {
        let change = &change;
        let link = present.name;
        commands.push(Command { change, link }.to_string());
    }
    commands
}

/// Returns the changes from nothing.
fn commands(cluster: &Cluster, passing: &[Target]) -> Vec<String> {
    let (desired, _) = cluster.desired(passing);
    printed(&Present::default(), &desired)
}

/// Returns the changes of the kernel from one cluster to the other.
fn between(
    before: &Cluster,
    passed: &[Target],
    after: &Cluster,
    passing: &[Target],
) -> Vec<String> {
    let present = carried_out(&before.desired(passed).0);
    printed(&present, &after.desired(passing).0)
}

fn own() -> Node {
    node("a", &["10.1.0.0/24"], &["192.0.2.1"])
}

fn near() -> Node {
    node("node-1", &["10.2.0.0/24"], &["192.0.2.2"])
}

#[test]
fn vxlan_reaches_a_node_of_two_families_over_ipv4() {
    let own = node(
        "a",
        &["10.1.0.0/24", "fd00:1::/64"],
        &["fd99::1", "192.0.2.1"],
    );
    let far = node(
        "node-1",
        &["10.2.0.0/24", "fd00:2::/64"],
        &["198.51.100.2", "198.51.100.3", "fd98::2"],
    );
    assert_eq!(
        commands(&Cluster::new(Mode::Vxlan, &[own, far]), &[]),
        [
            "ip link add braid-vxlan address ca:97:81:12:ca:1b mtu 1450 addrgenmode none up \
             type vxlan id 4626 local 192.0.2.1 dstport 4789 nolearning",
            "ip address add 10.1.0.0/32 dev braid-vxlan",
            "ip address add fd00:1::/128 dev braid-vxlan",
            "bridge fdb replace 36:97:1b:e6:e9:bb dev braid-vxlan dst 198.51.100.2 self permanent",
            "ip neigh replace 10.2.0.0 lladdr 36:97:1b:e6:e9:bb dev braid-vxlan nud permanent \
             protocol 98",
            "ip neigh replace fd00:2:: lladdr 36:97:1b:e6:e9:bb dev braid-vxlan nud permanent \
             protocol 98",
            "ip route add 10.2.0.0/24 via 10.2.0.0 dev braid-vxlan onlink proto 98",
            "ip -6 route add fd00:2::/64 via fd00:2:: dev braid-vxlan onlink proto 98",
        ]
    );
}

#[test]
fn an_ipv6_only_underlay_carries_vxlan_with_ranges_of_both_families() {
    let own = node("a", &["10.1.0.0/24"], &["fd99::1"]);
    let other = node("node-1", &["10.2.0.0/24"], &["fd99::2"]);
    let commands = commands(&Cluster::new(Mode::Vxlan, &[own, other]), &[]);
    assert!(commands[0].contains("mtu 1430") && commands[0].contains("local fd99::1"));
    assert!(commands[2].contains("dst fd99::2 self"));
    assert_eq!(
        commands[4],
        "ip route add 10.2.0.0/24 via 10.2.0.0 dev braid-vxlan onlink proto 98"
    );
}

#[test]
fn direct_routes_use_an_address_of_the_ranges_family_or_ipv6_for_ipv4() {
    let own = node(
        "a",
        &["10.1.0.0/24", "fd00:1::/64"],
        &["192.0.2.1", "fd99::1"],
    );
    let [both, six, four] = [
        node(
            "both",
            &["10.2.0.0/24", "fd00:2::/64"],
            &["192.0.2.2", "192.0.2.22", "fd99::2"],
        ),
        node("six", &["10.3.0.0/24", "fd00:3::/64"], &["fd99::3"]),
        node("four", &["10.4.0.0/24", "fd00:4::/64"], &["192.0.2.4"]),
    ];
    let cluster = Cluster::new(Mode::Direct, &[own, both, six, four]);
    assert_eq!(
        commands(&cluster, &[]),
        [
            "ip route add 10.2.0.0/24 via 192.0.2.2 dev if7 proto 98",
            "ip route add 10.3.0.0/24 via inet6 fd99::3 dev if7 proto 98",
            "ip route add 10.4.0.0/24 via 192.0.2.4 dev if7 proto 98",
            "ip -6 route add fd00:2::/64 via fd99::2 dev if7 proto 98",
            "ip -6 route add fd00:3::/64 via fd99::3 dev if7 proto 98",
        ]
    );
    let (_, unrouted) = cluster.desired(&[]);
    assert_eq!(unrouted.len(), 1);
    assert_eq!(
        unrouted[0].reason,
        "the node has no InternalIP of the range's family"
    );
}

#[test]
fn a_node_behind_a_router_gets_no_direct_route_and_is_reached_by_vxlan_in_mode_auto() {
    let far = node("far", &["10.2.0.0/24"], &["198.51.100.2"]);
    let direct = Cluster::new(Mode::Direct, &[own(), far.clone()]);
    let (desired, unrouted) = direct.desired(&[]);
    assert_eq!(desired, Desired::default());
    assert_eq!(
        unrouted[0].reason,
        "the node's InternalIP is not on a link of this node"
    );
    let auto = Cluster::new(Mode::Auto, &[own(), far]);
    assert_eq!(auto.targets(), []);
    let route = "ip route add 10.2.0.0/24 via 10.2.0.0 dev braid-vxlan onlink proto 98";
    assert_eq!(commands(&auto, &[]).last().expect("a command"), route);
}

#[test]
fn mode_auto_sends_probes_past_vxlan_and_their_answers_move_one_route() {
    let auto = Cluster::new(Mode::Auto, &[own(), near()]);
    let targets = auto.targets();
    assert_eq!(
        commands(&auto, &[])[4..],
        [
            "ip route add 10.2.0.0/32 via 192.0.2.2 dev if7 table 98 proto 98",
            "ip rule add pref 4626 from 10.1.0.0 lookup 98 proto 98",
            "ip route add 10.2.0.0/24 via 10.2.0.0 dev braid-vxlan onlink proto 98",
        ]
    );
    assert_eq!(
        between(&auto, &[], &auto, &targets),
        ["ip route replace 10.2.0.0/24 via 192.0.2.2 dev if7 proto 98"]
    );
    assert_eq!(
        between(&auto, &targets, &auto, &[]),
        ["ip route replace 10.2.0.0/24 via 10.2.0.0 dev braid-vxlan onlink proto 98"]
    );
}

#[test]
fn an_ipv6_route_is_deleted_before_it_moves_to_vxlan() {
    let own = node(
        "a",
        &["10.1.0.0/24", "fd00:1::/64"],
        &["192.0.2.1", "fd99::1"],
    );
    let near = node(
        "node-1",
        &["10.2.0.0/24", "fd00:2::/64"],
        &["192.0.2.2", "fd99::2"],
    );
    let auto = Cluster::new(Mode::Auto, &[own, near]);
    let targets = auto.targets();
    assert_eq!(
        between(&auto, &targets, &auto, &[]),
        [
            "ip route replace 10.2.0.0/24 via 10.2.0.0 dev braid-vxlan onlink proto 98",
            "ip -6 route del fd00:2::/64 via fd99::2 dev if7 proto 98",
            "ip -6 route add fd00:2::/64 via fd00:2:: dev braid-vxlan onlink proto 98",
        ]
    );
    assert_eq!(
        between(&auto, &[], &auto, &targets),
        [
            "ip route replace 10.2.0.0/24 via 192.0.2.2 dev if7 proto 98",
            "ip -6 route replace fd00:2::/64 via fd99::2 dev if7 proto 98",
        ]
    );
}

#[test]
fn a_change_of_mode_replaces_routes_before_the_link_is_deleted() {
    let cluster = |mode| Cluster::new(mode, &[own(), near()]);
    let replaced = "ip route replace 10.2.0.0/24 via 192.0.2.2 dev if7 proto 98";
    let deleted = "ip link del braid-vxlan";
    assert_eq!(
        between(&cluster(Mode::Vxlan), &[], &cluster(Mode::Direct), &[]),
        [replaced, deleted]
    );
    assert_eq!(
        between(&cluster(Mode::Auto), &[], &cluster(Mode::Direct), &[]),
        [
            replaced,
            "ip rule del pref 4626 from 10.1.0.0 lookup 98 proto 98",
            "ip route del 10.2.0.0/32 via 192.0.2.2 dev if7 table 98 proto 98",
            deleted,
        ]
    );
    assert_eq!(
        between(&cluster(Mode::Vxlan), &[], &cluster(Mode::None), &[]),
        [
            "ip route del 10.2.0.0/24 via 10.2.0.0 dev braid-vxlan onlink proto 98",
            deleted,
        ]
    );
    let to_vxlan = between(&cluster(Mode::Direct), &[], &cluster(Mode::Vxlan), &[]);
    assert_eq!(
        to_vxlan.last().expect("a command"),
        "ip route replace 10.2.0.0/24 via 10.2.0.0 dev braid-vxlan onlink proto 98"
    );
    assert_eq!(to_vxlan.len(), 5);
}

#[test]
fn another_address_of_a_node_replaces_its_fdb_entry_alone() {
    let moved = node("node-1", &["10.2.0.0/24"], &["192.0.2.77"]);
    let cluster = |other| Cluster::new(Mode::Vxlan, &[own(), other]);
    assert_eq!(
        between(&cluster(near()), &[], &cluster(moved), &[]),
        ["bridge fdb replace 36:97:1b:e6:e9:bb dev braid-vxlan dst 192.0.2.77 self permanent"]
    );
}

#[test]
fn another_own_address_makes_the_link_and_all_that_is_on_it_again() {
    let moved = node("a", &["10.1.0.0/24"], &["192.0.2.99"]);
    let cluster = |own| Cluster::new(Mode::Vxlan, &[own, near()]);
    let commands = between(&cluster(own()), &[], &cluster(moved), &[]);
    assert_eq!(commands[0], "ip link del braid-vxlan");
    assert!(commands[1].contains("local 192.0.2.99"), "{}", commands[1]);
    assert_eq!(commands.len(), 6, "{commands:?}");
    assert!(commands[5].starts_with("ip route add"), "{}", commands[5]);
}

#[test]
fn a_node_with_other_ranges_gets_the_new_entries_before_the_old_ones_go() {
    let renumbered = node("node-1", &["10.7.0.0/24"], &["192.0.2.2"]);
    let cluster = |other| Cluster::new(Mode::Vxlan, &[own(), other]);
    assert_eq!(
        between(&cluster(near()), &[], &cluster(renumbered), &[]),
        [
            "ip neigh replace 10.7.0.0 lladdr 36:97:1b:e6:e9:bb dev braid-vxlan nud permanent \
             protocol 98",
            "ip route add 10.7.0.0/24 via 10.7.0.0 dev braid-vxlan onlink proto 98",
            "ip route del 10.2.0.0/24 via 10.2.0.0 dev braid-vxlan onlink proto 98",
            "ip neigh del 10.2.0.0 lladdr 36:97:1b:e6:e9:bb dev braid-vxlan nud permanent \
             protocol 98",
        ]
    );
}

#[test]
fn entries_of_a_node_that_left_go_and_those_of_other_programs_stay() {
    let mut present = carried_out(&Cluster::new(Mode::Vxlan, &[own(), near()]).desired(&[]).0);
    let foreign = mac("someone else");
    let dst = addr("192.0.2.66");
    present.state.fdb.insert(Fdb { mac: foreign, dst });
    let (alone, _) = Cluster::new(Mode::Vxlan, &[own()]).desired(&[]);
    assert_eq!(
        printed(&present, &alone),
        [
            "ip route del 10.2.0.0/24 via 10.2.0.0 dev braid-vxlan onlink proto 98",
            "bridge fdb del 36:97:1b:e6:e9:bb dev braid-vxlan dst 192.0.2.2 self permanent",
            "ip neigh del 10.2.0.0 lladdr 36:97:1b:e6:e9:bb dev braid-vxlan nud permanent \
             protocol 98",
        ]
    );
}

#[test]
fn a_second_destination_of_a_nodes_mac_is_deleted_and_a_wrong_neighbour_replaced() {
    let cluster = Cluster::new(Mode::Vxlan, &[own(), near()]);
    let (desired, _) = cluster.desired(&[]);
    let mut present = carried_out(&desired);
    let wrong = Fdb {
        mac: mac("node-1"),
        dst: addr("192.0.2.66"),
    };
    present.state.fdb.insert(wrong);
    present.state.neighbours = BTreeSet::from([Neighbour {
        dst: addr("10.2.0.0"),
        mac: mac("wrong"),
    }]);
    assert_eq!(
        printed(&present, &desired),
        [
            "ip neigh replace 10.2.0.0 lladdr 36:97:1b:e6:e9:bb dev braid-vxlan nud permanent \
             protocol 98",
            "bridge fdb del 36:97:1b:e6:e9:bb dev braid-vxlan dst 192.0.2.66 self permanent",
        ]
    );
}

#[test]
fn a_link_that_is_down_or_was_changed_is_repaired_in_place() {
    let (desired, _) = Cluster::new(Mode::Vxlan, &[own()]).desired(&[]);
    let mut present = carried_out(&desired);
    let link = present.link.as_mut().expect("a link");
    (link.is_up, link.mtu, link.mac) = (false, 1500, None);
    // The kernel drops IPv6 addresses with the state.
    present.state = State::default();
    assert_eq!(
        printed(&present, &desired),
        [
            "ip link set braid-vxlan address ca:97:81:12:ca:1b",
            "ip link set braid-vxlan mtu 1450",
            "ip link set braid-vxlan up",
            "ip address add 10.1.0.0/32 dev braid-vxlan",
        ]
    );
}

#[test]
fn nodes_that_vxlan_cannot_reach_are_reported_with_the_reason() {
    let nodes = [
        own(),
        node("six", &["10.2.0.0/24"], &["fd98::2"]),
        node("none", &["10.3.0.0/24"], &[]),
        node("twin", &["10.4.0.0/24"], &["192.0.2.1"]),
        node("inside", &["10.5.0.0/24"], &["10.4.0.9"]),
        node("own-pod", &["10.6.0.0/24"], &["10.1.0.9"]),
    ];
    let (desired, unrouted) = Cluster::new(Mode::Vxlan, &nodes).desired(&[]);
    assert_eq!(desired.state.routes.len(), 0);
    let reasons: Vec<&str> = unrouted.iter().map(|it| it.reason).collect();
    assert_eq!(
        reasons,
        [
            "one of the two nodes has an IPv4 InternalIP, the other has not",
            "the node has no InternalIP",
            "the node's InternalIP is an address of this node",
            "the node's InternalIP is in a range of pods",
            "the node's InternalIP is in a range of pods",
        ]
    );
    // On a shared link, the direct path needs no VXLAN.
    let six = node("six", &["10.2.0.0/24"], &["fd99::2"]);
    let (desired, _) = Cluster::new(Mode::Auto, &[own(), six]).desired(&[]);
    let routes = printed(&Present::default(), &desired);
    assert_eq!(
        routes.last().expect("a command"),
        "ip route add 10.2.0.0/24 via inet6 fd99::2 dev if7 proto 98"
    );
}

#[test]
fn an_equal_state_needs_no_change_in_any_mode() {
    for mode in [Mode::Auto, Mode::Direct, Mode::Vxlan, Mode::None] {
        let cluster = Cluster::new(mode, &[own(), near()]);
        assert_eq!(between(&cluster, &[], &cluster, &[]), [""; 0], "{mode:?}");
    }
}
