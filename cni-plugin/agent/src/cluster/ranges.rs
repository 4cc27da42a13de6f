//! Ranges of other nodes that get routes, and the ignored ones with the reason.

use super::node::Node;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter};
use std::net::IpAddr;

/// Ranges that no other node's pods may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Ranges of this node's own pods. They are never judged.
    pub own: Vec<IpNet>,
    /// Networks of this node's uplink.
    pub links: Vec<IpNet>,
    /// Networks of this node's other links, such as containers of another program.
    pub local: Vec<IpNet>,
    /// Ranges of Services.
    pub services: Vec<IpNet>,
    /// Addresses of this node and of the API server.
    pub addresses: BTreeSet<IpAddr>,
}

/// Shortest prefix of a range, per family. A shorter one, such as 0.0.0.0/1, would act as a default
/// route. The largest networks that clusters use are 10.0.0.0/8, and a /16 of IPv6.
const SHORTEST: [u8; 2] = [8, 16];

/// Ranges that no pod has.
const SPECIAL: [(&str, &str); 11] = [
    ("0.0.0.0/8", "this network"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::ffff:0:0/96", "IPv4-mapped"),
    ("64:ff9b::/96", "NAT64"),
    ("fe80::/10", "link-local"),
    ("ff00::/8", "multicast"),
];

/// A range of a node's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted<'a> {
    /// The node.
    pub node: &'a Node,
    /// Its range.
    pub range: IpNet,
}

/// A range that gets no route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ignored {
    /// Name of the node.
    pub node: String,
    /// UID of the node.
    pub uid: String,
    /// The range as in the object.
    pub range: String,
    /// Reason, for the log and an event.
    pub reason: Reason,
}

/// Reason to ignore a range.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The text is not an address with a prefix length.
    Malformed,
    /// The range is a default route, or so wide that it acts as one.
    DefaultRoute,
    /// The range overlaps one with a special meaning, with its name.
    Special(&'static str),
    /// The range has the address of a node or of the API server.
    Address(IpAddr),
    /// The range overlaps another one of this node.
    Own(IpNet),
    /// The range overlaps a network of this node's uplink.
    Link(IpNet),
    /// The range overlaps a network of another link of this node.
    Local(IpNet),
    /// The range overlaps a range of Services.
    Services(IpNet),
    /// The range overlaps a range of an older node.
    Node(String, IpNet),
}

impl Display for Ignored {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        // The text comes from an object that others write, so it is quoted.
        let range = shortened(&self.range);
        match &self.reason {
            Reason::Malformed => write!(f, "pod range {range:?} is not an address range"),
            Reason::DefaultRoute => write!(f, "pod range {range} would be a default route"),
            Reason::Special(name) => write!(f, "pod range {range} overlaps the {name} range"),
            Reason::Address(address) => write!(
                f,
                "pod range {range} has the address {address} of a node or of the API server"
            ),
            Reason::Own(own) => write!(f, "pod range {range} overlaps {own} of this node"),
            Reason::Link(link) => write!(f, "pod range {range} overlaps {link} of the uplink"),
            Reason::Local(local) => {
                write!(
                    f,
                    "pod range {range} overlaps {local} of a link of this node"
                )
            }
            Reason::Services(services) => {
                write!(
                    f,
                    "pod range {range} overlaps the Services' range {services}"
                )
            }
            Reason::Node(node, other) => {
                write!(
                    f,
                    "pod range {range} overlaps {other} of the older node {node}"
                )
            }
        }
    }
}

/// Longest text of an object in a message.
const LONGEST: usize = 64;

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// Judges the ranges of all nodes but `own_name`. Of two nodes with overlapping ranges the older
/// one is routed, or the one with the lower UID if they were created in the same second. A range
/// must not have an address of its node, or of an older one. The address of a younger node does not
/// matter, since one wrong Node must not stop the traffic of another.
pub fn judge<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    own_name: &str,
    reserved: &Reserved,
) -> (Vec<Accepted<'a>>, Vec<Ignored>) {
    let mut others: Vec<&Node> = nodes
        .into_iter()
        .filter(|node| node.name != own_name)
        .collect();
    others.sort_by_key(|node| (node.created, &node.uid));
    let (mut accepted, mut ignored) = (Vec::new(), Vec::new());
    let mut taken = Taken::default();
    let mut addresses = reserved.addresses.clone();
    for node in others {
        addresses.extend(&node.addresses);
        for range in &node.ranges {
            let reason = match range {
                Ok(range) => match refusal(range, reserved, &addresses)
                    .or_else(|| taken.refusal(range, node))
                {
                    None => {
                        taken.insert(*range, node);
                        accepted.push(Accepted {
                            node,
                            range: *range,
                        });
                        continue;
                    }
                    Some(reason) => reason,
                },
                Err(_) => Reason::Malformed,
            };
            ignored.push(Ignored {
                node: node.name.clone(),
                uid: node.uid.clone(),
                range: range.as_ref().map_or_else(Clone::clone, IpNet::to_string),
                reason,
            });
        }
    }
    (accepted, ignored)
}

/// Returns the reason to ignore a range, whatever other nodes have. `addresses` are not of pods.
fn refusal(range: &IpNet, reserved: &Reserved, addresses: &BTreeSet<IpAddr>) -> Option<Reason> {
    let [ipv4, ipv6] = SHORTEST;
    let shortest = if range.addr().is_ipv4() { ipv4 } else { ipv6 };
    if range.prefix_len() < shortest {
        return Some(Reason::DefaultRoute);
    }
    if let Some(name) = special(range) {
        return Some(Reason::Special(name));
    }
    let first = |ranges: &[IpNet]| ranges.iter().find(|other| overlap(range, other)).copied();
    if let Some(own) = first(&reserved.own) {
        return Some(Reason::Own(own));
    }
    if let Some(link) = first(&reserved.links) {
        return Some(Reason::Link(link));
    }
    if let Some(local) = first(&reserved.local) {
        return Some(Reason::Local(local));
    }
    if let Some(services) = first(&reserved.services) {
        return Some(Reason::Services(services));
    }
    let mut inside = addresses.range(range.network()..=range.broadcast());
    inside.next().map(|address| Reason::Address(*address))
}

/// Returns the name of a range with a special meaning that overlaps this one.
fn special(range: &IpNet) -> Option<&'static str> {
    for (text, name) in SPECIAL {
        if text.parse().is_ok_and(|other| overlap(range, &other)) {
            return Some(name);
        }
    }
    None
}

/// True if the ranges have a common address.
pub fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// Accepted ranges by first address. They do not overlap, so the only candidates for an overlap are
/// the last range that begins at or before the new one's end, and no other.
#[derive(Debug, Default)]
struct Taken<'a> {
    by_start: BTreeMap<IpAddr, (IpNet, &'a Node)>,
}

impl<'a> Taken<'a> {
    fn insert(&mut self, range: IpNet, node: &'a Node) {
        self.by_start.insert(range.network(), (range, node));
    }

    /// Returns the reason to ignore a node's range that overlaps one of an older node.
    fn refusal(&self, range: &IpNet, node: &Node) -> Option<Reason> {
        let (other, owner) = self.overlapping(range)?;
        // A node that lists the same range twice gets one route.
        (owner.uid != node.uid).then(|| Reason::Node(shortened(&owner.name), other))
    }

    fn overlapping(&self, range: &IpNet) -> Option<(IpNet, &'a Node)> {
        let end = range.broadcast();
        let (_, (other, node)) = self.by_start.range(..=end).next_back()?;
        overlap(range, other).then_some((*other, *node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::flannel::Annotations;

    fn node(name: &str, created: i64, ranges: &[&str]) -> Node {
        Node {
            name: name.into(),
            uid: format!("uid-{name}"),
            created,
            ranges: ranges
                .iter()
                .map(|text| text.parse().ok().ok_or((*text).to_owned()))
                .collect(),
            addresses: Vec::new(),
            is_network_unavailable: false,
            flannel: Annotations::default(),
        }
    }

    fn reserved() -> Reserved {
        let parse = |text: &str| text.parse().expect("a range");
        Reserved {
            own: vec![parse("10.244.0.0/24")],
            links: vec![parse("192.0.2.0/24"), parse("2001:db8::/64")],
            local: vec![parse("172.17.0.0/16")],
            services: vec![parse("10.96.0.0/16")],
            addresses: ["10.99.0.7", "fd99::7"]
                .map(|text| text.parse().expect("an address"))
                .into(),
        }
    }

    /// Returns the accepted ranges as `node range`, and the ignored ones as `node: message`.
    fn judged(nodes: &[Node]) -> (Vec<String>, Vec<String>) {
        let (accepted, ignored) = judge(nodes, "own", &reserved());
        let accepted = accepted
            .iter()
            .map(|accepted| format!("{} {}", accepted.node.name, accepted.range));
        let ignored = ignored
            .iter()
            .map(|ignored| format!("{}: {ignored}", ignored.node));
        (accepted.collect(), ignored.collect())
    }

    #[test]
    fn both_families_of_other_nodes_are_accepted_and_the_own_node_is_left_out() {
        let nodes = [
            node("own", 1, &["10.244.0.0/24"]),
            node("a", 2, &["10.244.1.0/24", "fd00:1::/64"]),
        ];
        let expected = ["a 10.244.1.0/24", "a fd00:1::/64"].map(String::from);
        assert_eq!(judged(&nodes), (expected.to_vec(), Vec::new()));
    }

    #[test]
    fn a_younger_nodes_address_does_not_stop_the_range_of_an_older_one() {
        let wrong = Node {
            addresses: vec!["10.244.1.5".parse().expect("an address")],
            ..node("wrong", 2, &["10.244.2.0/24"])
        };
        let older = node("older", 1, &["10.244.1.0/24"]);
        let (accepted, ignored) = judged(&[wrong.clone(), older.clone()]);
        assert_eq!(accepted, ["older 10.244.1.0/24", "wrong 10.244.2.0/24"]);
        assert_eq!(ignored, [""; 0]);
        // The older one's address is as wrong, but decides.
        let younger = Node {
            created: 3,
            ..older
        };
        let (accepted, ignored) = judged(&[wrong, younger]);
        assert_eq!(accepted, ["wrong 10.244.2.0/24"]);
        assert_eq!(ignored.len(), 1, "{ignored:?}");
    }

    #[test]
    fn ranges_that_would_take_other_traffic_are_ignored_with_the_reason() {
        for (range, reason) in [
            ("0.0.0.0/0", "pod range 0.0.0.0/0 would be a default route"),
            ("::/0", "pod range ::/0 would be a default route"),
            ("0.0.0.0/1", "pod range 0.0.0.0/1 would be a default route"),
            (
                "128.0.0.0/7",
                "pod range 128.0.0.0/7 would be a default route",
            ),
            ("2000::/3", "pod range 2000::/3 would be a default route"),
            ("fd00::/15", "pod range fd00::/15 would be a default route"),
            (
                "169.254.169.0/24",
                "pod range 169.254.169.0/24 overlaps the link-local range",
            ),
            (
                "127.1.0.0/16",
                "pod range 127.1.0.0/16 overlaps the loopback range",
            ),
            (
                "239.0.0.0/8",
                "pod range 239.0.0.0/8 overlaps the multicast range",
            ),
            (
                "255.255.255.255/32",
                "pod range 255.255.255.255/32 overlaps the reserved range",
            ),
            (
                "fe80::/64",
                "pod range fe80::/64 overlaps the link-local range",
            ),
            (
                "ff02::/16",
                "pod range ff02::/16 overlaps the multicast range",
            ),
            ("::1/128", "pod range ::1/128 overlaps the loopback range"),
            (
                "10.99.0.0/24",
                "pod range 10.99.0.0/24 has the address 10.99.0.7 of a node or of the API server",
            ),
            (
                "fd99::/64",
                "pod range fd99::/64 has the address fd99::7 of a node or of the API server",
            ),
            (
                "10.244.0.128/25",
                "pod range 10.244.0.128/25 overlaps 10.244.0.0/24 of this node",
            ),
            (
                "192.0.0.0/8",
                "pod range 192.0.0.0/8 overlaps 192.0.2.0/24 of the uplink",
            ),
            (
                "2001:db8::1/128",
                "pod range 2001:db8::1/128 overlaps 2001:db8::/64 of the uplink",
            ),
            (
                "172.17.5.0/24",
                "pod range 172.17.5.0/24 overlaps 172.17.0.0/16 of a link of this node",
            ),
            (
                "10.96.1.0/24",
                "pod range 10.96.1.0/24 overlaps the Services' range 10.96.0.0/16",
            ),
            ("10.0.0.0", "pod range \"10.0.0.0\" is not an address range"),
            (
                "$(reboot)\n",
                "pod range \"$(reboot)\\n\" is not an address range",
            ),
        ] {
            let nodes = [node("a", 2, &[range])];
            assert_eq!(judged(&nodes), (Vec::new(), vec![format!("a: {reason}")]));
        }
    }

    #[test]
    fn of_overlapping_nodes_the_older_one_is_routed() {
        let nodes = [
            node("young", 5, &["10.244.1.0/25"]),
            node("old", 4, &["10.244.1.0/24"]),
            node("twin-b", 6, &["10.244.2.0/24"]),
            node("twin-a", 6, &["10.244.0.0/16", "10.244.2.0/24"]),
        ];
        let (accepted, ignored) = judged(&nodes);
        assert_eq!(accepted, ["old 10.244.1.0/24", "twin-a 10.244.2.0/24"]);
        assert_eq!(
            ignored,
            [
                "young: pod range 10.244.1.0/25 overlaps 10.244.1.0/24 of the older node old",
                "twin-a: pod range 10.244.0.0/16 overlaps 10.244.0.0/24 of this node",
                "twin-b: pod range 10.244.2.0/24 overlaps 10.244.2.0/24 of the older node twin-a",
            ]
        );
    }

    #[test]
    fn a_range_that_contains_an_older_nodes_range_is_ignored() {
        let nodes = [
            node("old", 4, &["10.3.7.0/24"]),
            node("young", 5, &["10.3.0.0/16"]),
        ];
        assert_eq!(judged(&nodes).0, ["old 10.3.7.0/24"]);
    }

    #[test]
    fn the_map_of_taken_ranges_finds_each_overlap_of_a_linear_search() {
        let mut taken = Taken::default();
        let owner = node("a", 1, &[]);
        let mut all: Vec<IpNet> = Vec::new();
        let mut seed: u32 = 1;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let prefix = u8::try_from(8 + (seed >> 8) % 25).expect("up to 32");
            let range = ipnet::Ipv4Net::new(seed.into(), prefix)
                .expect("a range")
                .trunc();
            let range = IpNet::from(range);
            let is_taken = all.iter().any(|other| overlap(&range, other));
            assert_eq!(taken.overlapping(&range).is_some(), is_taken, "{range}");
            if !is_taken {
                taken.insert(range, &owner);
                all.push(range);
            }
        }
    }
}
