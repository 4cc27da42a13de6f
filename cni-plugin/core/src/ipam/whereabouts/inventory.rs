//! Use of all pools, by nodes and by Whereabouts: the content of `braid ipam`.

use super::fence::{FoundNode, NodeState, OUT_OF_SERVICE, is_gone};
use super::names;
use super::pool::{Entry, ListedPool, Node, Note};
use super::range::usable;
use crate::ipam::range::to_bits;
use ipnet::IpNet;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// All pools, and their nodes.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Inventory {
    /// Pools by name.
    pub pools: Vec<PoolUse>,
    /// Nodes with an annotation on a pool.
    pub nodes: Vec<NodeUse>,
    /// Entries of Whereabouts.
    pub whereabouts: Foreign,
}

/// Use of a pool. Each of its entries is counted once.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolUse {
    /// Name of the object.
    pub name: String,
    /// Its range.
    pub range: String,
    /// Entries of containers that braid attached.
    pub used: usize,
    /// Entries that nodes hold for their next pods.
    pub held: usize,
    /// Entries of claims without a pod.
    pub claimed: usize,
    /// Entries of Whereabouts.
    pub whereabouts: usize,
    /// Usable addresses of the range without an entry, at most 2^64 - 1. Keys of the networks, such
    /// as `exclude`, are not known here.
    pub free: u64,
    /// True if Whereabouts no longer uses the pool.
    pub exclusive: bool,
}

/// Entries of a node in all pools.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct NodeUse {
    /// Name of the node.
    pub name: String,
    /// State of the node that wrote the annotations. A node that was made again can have two states.
    pub state: NodeState,
    /// Entries of its containers.
    pub used: usize,
    /// Entries that it holds for its next pods.
    pub held: usize,
}

/// Entries that no annotation of a node names.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Foreign {
    /// Number of entries.
    pub entries: usize,
    /// Names of their pools.
    pub pools: Vec<String>,
    /// Names of those that Whereabouts should no longer use: it is used again.
    pub returned: Vec<String>,
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Of a container that braid attached.
    Used,
    /// Held by a node for its next pods.
    Held,
    /// Of a claim without a pod.
    Claimed,
    /// Of Whereabouts.
    Whereabouts,
}

impl Kind {
    fn of(entry: &Entry, node: Option<&Node>) -> Self {
        match node {
            _ if entry.is_held() => Self::Held,
            Some(_) => Self::Used,
            None if entry.claim().is_some() => Self::Claimed,
            None => Self::Whereabouts,
        }
    }
}

/// An address in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Assigned {
    /// Name of the pool.
    pub pool: String,
    /// The address, or `offset <number>` if the entry is outside the range.
    pub address: String,
    /// Kind of the entry.
    pub kind: Kind,
    /// Container id, or `claim:` and the uid of an IPAMClaim; `None` for a held address.
    pub container_id: Option<String>,
    /// Interface in the container, if known.
    pub ifname: Option<String>,
    /// `namespace/name` of the pod. Entries of braid do not name it.
    pub pod: Option<String>,
    /// Name of the node. Entries of Whereabouts do not name it.
    pub node: Option<String>,
}

impl Assigned {
    /// Describes an entry.
    pub fn new(pool: &ListedPool, offset: u128, entry: &Entry, node: Option<&Node>) -> Self {
        let address = pool.net().and_then(|net| names::address(net, offset));
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let kind = Kind::of(entry, node);
        Self {
            pool: pool.name.clone(),
            address: address.map_or_else(|| format!("offset {offset}"), |it| it.to_string()),
            kind,
            container_id: some(&entry.id).filter(|_| kind != Kind::Held),
            ifname: some(&entry.ifname),
            pod: some(&entry.podref),
            node: node.map(|node| node.name.clone()),
        }
    }
}

/// Returns the entries of a pool by offset, each with the node that has it.
fn entries(pool: &ListedPool) -> BTreeMap<u128, (&Entry, Option<Node>)> {
    let entries = pool.pool.entries.iter();
    let mut all: BTreeMap<_, _> = entries.map(|(at, entry)| (*at, (entry, None))).collect();
    for (_, note) in pool.pool.notes() {
        for offset in pool.pool.entries_of(&note).into_keys() {
            if let Some((_, node)) = all.get_mut(&offset) {
                *node = Some(note.node.clone());
            }
        }
    }
    all
}

/// Returns the entries of Whereabouts in a pool.
pub(super) fn foreign(pool: &ListedPool) -> BTreeMap<u128, &Entry> {
    let of_whereabouts = entries(pool).into_iter().filter_map(|(at, (entry, node))| {
        let is_foreign = Kind::of(entry, node.as_ref()) == Kind::Whereabouts;
        is_foreign.then_some((at, entry))
    });
    of_whereabouts.collect()
}

/// Returns all addresses in use, by pool and address.
pub fn assigned(pools: &[ListedPool]) -> Vec<Assigned> {
    let mut all = Vec::new();
    for pool in pools {
        for (offset, (entry, node)) in entries(pool) {
            all.push(Assigned::new(pool, offset, entry, node.as_ref()));
        }
    }
    all
}

/// Returns the names of the nodes that have an annotation on a pool.
pub fn nodes(pools: &[ListedPool]) -> BTreeSet<String> {
    let notes = pools.iter().flat_map(|pool| pool.pool.notes());
    notes.map(|(_, note)| note.node.name).collect()
}

/// Counts the entries of all pools. `found` are the Node objects that exist.
pub fn count(pools: &[ListedPool], found: &BTreeMap<String, FoundNode>) -> Inventory {
    let mut inventory = Inventory::default();
    let mut nodes = BTreeMap::new();
    for pool in pools {
        let usage = count_pool(pool);
        if usage.whereabouts > 0 {
            inventory.whereabouts.entries += usage.whereabouts;
            inventory.whereabouts.pools.push(pool.name.clone());
            if usage.exclusive {
                inventory.whereabouts.returned.push(pool.name.clone());
            }
        }
        inventory.pools.push(usage);
        for (_, note) in pool.pool.notes() {
            let state = NodeState::of(&note.node, found.get(&note.node.name));
            let entries = pool.pool.entries_of(&note);
            let held = entries.values().filter(|entry| entry.is_held()).count();
            let of_node = nodes.entry((note.node.name, state)).or_insert((0, 0));
            of_node.0 += entries.len() - held;
            of_node.1 += held;
        }
    }
    for ((name, state), (used, held)) in nodes {
        inventory.nodes.push(NodeUse {
            name,
            state,
            used,
            held,
        });
    }
    inventory
}

fn count_pool(pool: &ListedPool) -> PoolUse {
    let mut usage = PoolUse {
        name: pool.name.clone(),
        range: pool.range.clone(),
        free: pool.net().map_or(0, |net| free(net, pool)),
        exclusive: pool.pool.is_exclusive(),
        ..PoolUse::default()
    };
    for (entry, node) in entries(pool).into_values() {
        match Kind::of(entry, node.as_ref()) {
            Kind::Used => usage.used += 1,
            Kind::Held => usage.held += 1,
            Kind::Claimed => usage.claimed += 1,
            Kind::Whereabouts => usage.whereabouts += 1,
        }
    }
    usage
}

/// Returns the number of usable addresses without an entry.
fn free(net: IpNet, pool: &ListedPool) -> u64 {
    let (first, last) = usable(net);
    let offsets = pool.pool.entries.keys();
    let taken = offsets.filter_map(|at| names::address(net, *at));
    let taken = taken.filter(|address| (first..=last).contains(address));
    let size = (to_bits(last) - to_bits(first)).saturating_add(1);
    let free = size.saturating_sub(taken.count() as u128);
    u64::try_from(free).unwrap_or(u64::MAX)
}

/// Annotations of one node: pool, text and content.
pub type Notes<'p> = Vec<(&'p ListedPool, &'p str, Note)>;

/// Returns the annotations of a node that is gone, or of any with `is_forced`.
pub fn releasable<'p>(
    pools: &'p [ListedPool],
    node: &str,
    found: Option<&FoundNode>,
    is_forced: bool,
) -> Result<Notes<'p>, Refusal> {
    let (mut notes, mut is_present) = (Vec::new(), false);
    for pool in pools {
        for (text, note) in pool.pool.notes() {
            if note.node.name != node {
                continue;
            }
            if is_forced || is_gone(&note.node, found) {
                notes.push((pool, text, note));
            } else {
                is_present = true;
            }
        }
    }
    match (notes.is_empty(), is_present) {
        (true, true) => Err(Refusal::Present(node.to_owned())),
        (true, false) => Err(Refusal::Unknown(node.to_owned())),
        (false, _) => Ok(notes),
    }
}

/// Reason why the addresses of a node are not released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No pool has an annotation of the node.
    Unknown(String),
    /// The node's containers may run.
    Present(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(node) => write!(f, "node {node:?}: no IPPool has an address of it"),
            Self::Present(node) => write!(
                f,
                "node {node:?}: its Node object exists without the taint {OUT_OF_SERVICE}, so its \
                 containers may run and use the addresses; shut the machine down, and delete the \
                 Node object or set the taint (--force releases them all the same)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::whereabouts::last::Last;
    use crate::ipam::whereabouts::pool::{EXCLUSIVE, TRUE};
    use serde_json::{Value, json};

    fn node(name: &str) -> Node {
        Node {
            name: name.into(),
            uid: format!("uid-{name}"),
            boot: "boot".into(),
        }
    }

    fn entry(id: &str, podref: &str) -> Entry {
        Entry {
            id: id.into(),
            podref: podref.into(),
            ifname: "net1".into(),
        }
    }

    /// Returns a pool with entries of nodes, and one of Whereabouts and one of a claim.
    fn pool(range: &str, of: &[(&str, u128, Entry)], has_foreign: bool) -> ListedPool {
        let mut own: BTreeMap<&str, BTreeMap<u128, Entry>> = BTreeMap::new();
        let (mut allocations, mut annotations) = (json!({}), json!({}));
        for (name, offset, entry) in of {
            allocations[offset.to_string()] = json!(entry);
            own.entry(name).or_default().insert(*offset, entry.clone());
        }
        for (name, own) in own {
            let text = Note::new(node(name), 1, &own, &Last::default()).text();
            annotations[node(name).key()] = Value::from(text);
        }
        if has_foreign {
            allocations["9"] = json!(entry("foreign", "shop/web"));
            allocations["10"] = json!(Entry::of_claim("c1"));
        }
        let list = json!([{
            "metadata": {"name": range.replace('/', "-"), "annotations": annotations},
            "spec": {"range": range, "allocations": allocations},
        }]);
        let mut all = ListedPool::parse_all(list.to_string().as_bytes()).unwrap();
        all.remove(0)
    }

    /// Returns two pools with two nodes: `a` has containers and a held address, `b` a container.
    fn pools() -> [ListedPool; 2] {
        let first = [
            ("a", 1, entry("one", "")),
            ("a", 2, Entry::held_by(&node("a"))),
            ("b", 3, entry("two", "")),
        ];
        [
            pool("10.0.0.0/28", &first, true),
            pool("fd00::/64", &[("a", 20, entry("one", ""))], false),
        ]
    }

    fn found(name: &str) -> FoundNode {
        FoundNode {
            uid: node(name).uid,
            boot: node(name).boot,
            is_out_of_service: false,
        }
    }

    #[test]
    fn entries_are_counted_by_pool_and_by_node() {
        let found = [("a".to_owned(), found("a"))].into();
        let inventory = count(&pools(), &found);
        let expected = json!({
            "pools": [
                {"name": "10.0.0.0-28", "range": "10.0.0.0/28", "used": 2, "held": 1,
                 "claimed": 1, "whereabouts": 1, "free": 9, "exclusive": false},
                {"name": "fd00::-64", "range": "fd00::/64", "used": 1, "held": 0,
                 "claimed": 0, "whereabouts": 0, "free": u64::MAX - 2, "exclusive": false},
            ],
            "nodes": [
                {"name": "a", "state": "present", "used": 2, "held": 1},
                {"name": "b", "state": "missing", "used": 1, "held": 0},
            ],
            "whereabouts": {"entries": 1, "pools": ["10.0.0.0-28"], "returned": []},
        });
        assert_eq!(json!(inventory), expected);
        assert_eq!(nodes(&pools()), ["a".to_owned(), "b".to_owned()].into());
    }

    #[test]
    fn an_entry_of_whereabouts_in_a_pool_of_braid_alone_says_that_it_is_used_again() {
        let mut pools = pools();
        for pool in &mut pools {
            let annotations = pool.pool.annotations.get_or_insert_default();
            annotations.insert(EXCLUSIVE.to_owned(), TRUE.to_owned());
        }
        let inventory = count(&pools, &BTreeMap::new());
        assert!(inventory.pools.iter().all(|pool| pool.exclusive));
        assert_eq!(inventory.whereabouts.returned, ["10.0.0.0-28"]);
    }

    #[test]
    fn a_node_that_was_made_again_has_an_old_and_a_new_state() {
        let mut pools = pools();
        let again = FoundNode {
            uid: "again".into(),
            boot: "next".into(),
            is_out_of_service: false,
        };
        let new = Node {
            name: "a".into(),
            uid: again.uid.clone(),
            boot: again.boot.clone(),
        };
        let own = [(20, entry("one", ""))].into();
        let text = Note::new(new.clone(), 1, &own, &Last::default()).text();
        pools[1].pool.annotations = Some([(new.key(), text)].into());
        let all = [
            ("a".to_owned(), again.clone()),
            ("b".to_owned(), found("b")),
        ]
        .into();
        let nodes = count(&pools, &all).nodes;
        let states: Vec<_> = nodes
            .iter()
            .map(|it| (&*it.name, it.state, it.used))
            .collect();
        let expected = [
            ("a", NodeState::Present, 1),
            ("a", NodeState::Replaced, 1),
            ("b", NodeState::Present, 1),
        ];
        assert_eq!(states, expected);
        // Only the addresses of the old one may be released.
        let notes = releasable(&pools, "a", Some(&again), false).unwrap();
        let names: Vec<_> = notes.iter().map(|(pool, ..)| &*pool.name).collect();
        assert_eq!(names, ["10.0.0.0-28"]);
    }

    #[test]
    fn an_address_has_its_container_and_its_node_or_its_pod() {
        let [pool, _] = pools();
        let mut pools = [pool];
        let outside = entry("outside", "shop/late");
        pools[0].pool.entries.insert(99, outside);
        let texts: Vec<_> = assigned(&pools)
            .iter()
            .map(|it| {
                let of = [&it.container_id, &it.pod, &it.node].map(|it| it.as_deref());
                let [id, pod, node] = of.map(|it| it.unwrap_or("-"));
                format!("{} {:?} {id} {pod} {node}", it.address, it.kind)
            })
            .collect();
        let expected = [
            "10.0.0.1 Used one - a",
            "10.0.0.2 Held - - a",
            "10.0.0.3 Used two - b",
            "10.0.0.9 Whereabouts foreign shop/web -",
            "10.0.0.10 Claimed claim:c1 - -",
            "offset 99 Whereabouts outside shop/late -",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn only_a_node_that_is_gone_is_released_without_force() {
        let pools = pools();
        let living = found("a");
        let of = |found, is_forced| {
            let notes = releasable(&pools, "a", found, is_forced);
            notes.map(|notes| notes.len())
        };
        assert_eq!(of(Some(&living), false), Err(Refusal::Present("a".into())));
        assert_eq!(of(Some(&living), true), Ok(2));
        assert_eq!(of(None, false), Ok(2));
        let unknown = releasable(&pools, "c", None, true);
        assert_eq!(unknown, Err(Refusal::Unknown("c".into())));
    }

    #[test]
    fn a_pool_with_another_text_than_a_range_is_listed() {
        let mut pool = pool("10.0.0.0/28", &[("a", 1, entry("one", ""))], false);
        pool.range = "10.0.0.0".to_owned();
        let inventory = count(&[pool], &BTreeMap::new());
        let [usage] = &inventory.pools[..] else {
            panic!("{inventory:?}");
        };
        assert_eq!((usage.used, usage.free), (1, 0));
    }
}
