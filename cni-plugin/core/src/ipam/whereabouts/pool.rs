//! An `IPPool`: the addresses of a range that are in use, in the whole cluster.
//!
//! ```yaml
//! metadata:
//!   name: 10.0.0.0-24
//!   annotations: {ipam.braid.io/7f3a91c204d0be11: '{"node": "a", "uid": "…", "boot": "…", "seq": 42, "own": "5:3fa9c2d1", "last": "9c41d0a7:7", "network": "lan"}'}
//! spec:
//!   range: 10.0.0.0/24
//!   allocations: {"5": {id: 3fa9c2d1…, podref: "", ifname: net1}}
//! ```

use super::last::Last;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::take;

/// Start of the keys of the nodes' annotations.
const KEY: &str = "ipam.braid.io/";
/// Annotation of a pool that Whereabouts no longer uses: [`TRUE`].
pub(super) const EXCLUSIVE: &str = "ipam.braid.io/exclusive";
/// Value of [`EXCLUSIVE`].
pub(super) const TRUE: &str = "true";
/// Start of the id of an entry that no container has. A container id has no colon.
const HELD: &str = "braid:";
/// Start of the id of a claim's entry.
pub(super) const CLAIM: &str = "claim:";
/// Characters of an entry's id in an annotation.
const SHORT: usize = 8;

/// A pool, as the API server has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pool {
    /// `metadata.uid`: another one for each creation.
    pub uid: String,
    /// `metadata.resourceVersion`: another one for each change.
    pub version: String,
    /// `metadata.annotations`; `None` if the pool has none.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Entries by offset. Keys that are no numbers are left out.
    pub entries: BTreeMap<u128, Entry>,
    /// True if `spec.allocations` is a map, possibly an empty one.
    pub has_allocations: bool,
}

/// An entry of a pool: an address that is in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// Container id of an attachment, or `braid:` and the name of the node that holds the address, or
    /// `claim:` and the uid of an IPAMClaim.
    pub id: String,
    /// `namespace/name` of its pod. Empty in entries of braid: Whereabouts' reconciler skips these, and
    /// its ADD takes none of them over.
    pub podref: String,
    /// Interface of the attachment.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ifname: String,
}

impl Entry {
    /// Returns the entry of an address that a node holds for its next pods.
    pub fn held_by(node: &Node) -> Self {
        Self {
            id: format!("{HELD}{}", node.name),
            ..Self::default()
        }
    }

    /// True if a node holds the address for its next pods.
    pub fn is_held(&self) -> bool {
        self.id.starts_with(HELD)
    }

    /// Returns the entry of an IPAMClaim with this uid. It stays in the pool until the claim is deleted.
    /// The annotation of a node names it while an attachment there has the address.
    pub fn of_claim(uid: &str) -> Self {
        Self {
            id: format!("{CLAIM}{uid}"),
            ..Self::default()
        }
    }

    /// Returns the uid of the IPAMClaim that has the address.
    pub fn claim(&self) -> Option<&str> {
        self.id.strip_prefix(CLAIM)
    }

    /// Returns the `spec.containerid` of the reservations that a node makes for the entry. A claim may
    /// be used on several nodes, so its reservations name the node too.
    pub fn holder(&self, node: &Node) -> String {
        match self.claim() {
            Some(_) => format!("{}@{}", self.id, node.name),
            None => self.id.clone(),
        }
    }

    /// Returns the characters of the id that an annotation has.
    pub fn short(&self) -> &str {
        short(&self.id)
    }

    /// True if the entry is that of an attachment: a container and an interface.
    pub fn is_of(&self, id: &str, ifname: &str) -> bool {
        self.id == id && self.ifname == ifname
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    spec: Spec,
}

/// Metadata of an object.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) uid: String,
    #[serde(rename = "resourceVersion")]
    version: String,
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    range: String,
    allocations: Option<BTreeMap<String, Entry>>,
}

impl From<Object> for Pool {
    fn from(Object { metadata, spec }: Object) -> Self {
        let has_allocations = spec.allocations.is_some();
        let mut entries = BTreeMap::new();
        for (key, entry) in spec.allocations.unwrap_or_default() {
            if let Ok(offset) = key.parse() {
                entries.insert(offset, entry);
            }
        }
        Self {
            uid: metadata.uid,
            version: metadata.version,
            annotations: metadata.annotations,
            entries,
            has_allocations,
        }
    }
}

impl Pool {
    /// Parses the object.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice::<Object>(bytes).map(Self::from)
    }

    /// Returns the annotation with this key.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// True if Whereabouts no longer uses the pool: `braid ipam finish` has said so.
    pub fn is_exclusive(&self) -> bool {
        self.annotation(EXCLUSIVE) == Some(TRUE)
    }

    /// Returns the annotations of nodes: text and content.
    pub fn notes(&self) -> impl Iterator<Item = (&str, Note)> {
        let annotations = self.annotations.iter().flatten();
        annotations.filter_map(|(key, text)| {
            let note = Note::parse(text).filter(|note| note.node.key() == *key)?;
            Some((text.as_str(), note))
        })
    }

    /// Returns the entries that an annotation names.
    pub fn entries_of(&self, note: &Note) -> BTreeMap<u128, Entry> {
        let mut entries = BTreeMap::new();
        for (offset, id) in note.entries() {
            let entry = self.entries.get(&offset);
            if let Some(entry) = entry.filter(|entry| short(&entry.id) == id) {
                entries.insert(offset, entry.clone());
            }
        }
        entries
    }
}

/// A pool of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedPool {
    /// `metadata.name`.
    pub name: String,
    /// `spec.range`.
    pub range: String,
    /// The pool.
    pub pool: Pool,
}

impl ListedPool {
    /// Parses a list of objects.
    pub fn parse_all(bytes: &[u8]) -> serde_json::Result<Vec<Self>> {
        let mut all = Vec::new();
        for mut object in serde_json::from_slice::<Vec<Object>>(bytes)? {
            all.push(Self {
                name: take(&mut object.metadata.name),
                range: take(&mut object.spec.range),
                pool: object.into(),
            });
        }
        Ok(all)
    }

    /// Returns the range of the pool; `None` if an administrator wrote another text.
    pub fn net(&self) -> Option<IpNet> {
        self.range.parse().ok().map(|net: IpNet| net.trunc())
    }
}

/// The node that writes an annotation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Name of the Node object.
    #[serde(rename = "node")]
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Id of the boot.
    pub boot: String,
}

impl Node {
    /// Returns the key of the node's annotation. A name may be too long for a key.
    pub fn key(&self) -> String {
        let hash = Sha256::digest(self.name.as_bytes());
        format!("{KEY}{}", base16ct::lower::encode_string(&hash[..8]))
    }
}

/// A node's annotation on a pool: the entries that are the node's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The node.
    #[serde(flatten)]
    pub node: Node,
    /// Number of the change. It grows with each.
    pub seq: u64,
    /// `offset:first characters of the id`, separated by commas.
    own: String,
    /// Last addresses of pods of the node.
    #[serde(default, skip_serializing_if = "Last::is_empty")]
    pub last: Last,
    /// Network of the attachments; empty if they are of several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub network: String,
}

impl Note {
    /// Returns the annotation of a node with these entries, without a network.
    pub fn new(node: Node, seq: u64, own: &BTreeMap<u128, Entry>, last: &Last) -> Self {
        let mut text = String::new();
        for (offset, entry) in own {
            let separator = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{separator}{offset}:{}", short(&entry.id));
        }
        Self {
            node,
            seq,
            own: text,
            last: last.clone(),
            network: String::new(),
        }
    }

    /// Parses an annotation; `None` if it is none that braid wrote.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text of the annotation.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the offset of each entry, and the first characters of its id.
    pub fn entries(&self) -> impl Iterator<Item = (u128, &str)> {
        self.own.split(',').filter_map(|one| {
            let (at, id) = one.split_once(':')?;
            Some((at.parse().ok()?, id))
        })
    }

    /// True if the node has no entry.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// True if an entry at this offset with this id is the node's.
    pub fn has(&self, offset: u128, id: &str) -> bool {
        self.entries().any(|one| one == (offset, short(id)))
    }
}

fn short(id: &str) -> &str {
    id.get(..SHORT).unwrap_or(id)
}

/// Returns the slice of a node in a `NodeSlicePool`; `None` if it has none.
///
/// ```yaml
/// status: {allocations: [{nodeName: n1, sliceRange: 10.0.1.0/24}]}
/// ```
pub fn slice(bytes: &[u8], node: &str) -> serde_json::Result<Option<IpNet>> {
    let pool: SlicePool = serde_json::from_slice(bytes)?;
    let mut slices = pool.status.allocations.into_iter().flatten();
    let own = slices.find(|slice| slice.node == node);
    Ok(own.and_then(|slice| slice.range.parse().ok()))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlicePool {
    status: SliceStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SliceStatus {
    allocations: Option<Vec<Slice>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Slice {
    #[serde(rename = "nodeName")]
    node: String,
    #[serde(rename = "sliceRange")]
    range: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_parsed_as_whereabouts_and_braid_write_it() {
        let text = r#"{"kind": "IPPool", "metadata": {"name": "10.0.0.0-24", "uid": "4f1c",
            "annotations": {"a": "b"}}, "spec": {"range": "10.0.0.0/24", "allocations": {
            "5": {"id": "c1", "podref": "ns/pod", "ifname": "net1"}, "7": {"id": "c2", "podref": ""},
            "x": {"id": "c3", "podref": ""}}}}"#;
        let pool = Pool::parse(text.as_bytes()).unwrap();
        assert_eq!((&*pool.uid, pool.annotation("a")), ("4f1c", Some("b")));
        assert_eq!(pool.entries[&5].podref, "ns/pod");
        assert_eq!(pool.entries.keys().collect::<Vec<_>>(), [&5, &7]);
        for (text, has) in [
            (
                r#"{"spec": {"range": "10.0.0.0/24", "allocations": {}}}"#,
                true,
            ),
            (
                r#"{"spec": {"range": "10.0.0.0/24", "allocations": null}}"#,
                false,
            ),
        ] {
            let pool = Pool::parse(text.as_bytes()).unwrap();
            assert_eq!((pool.has_allocations, pool.annotations), (has, None));
        }
    }

    #[test]
    fn a_slice_is_that_of_the_node() {
        let text = br#"{"spec": {"range": "10.0.0.0/16", "sliceSize": "/24"}, "status": {"allocations": [
            {"nodeName": "a", "sliceRange": "10.0.1.0/24"}, {"nodeName": "", "sliceRange": "10.0.2.0/24"}]}}"#;
        let net = "10.0.1.0/24".parse().unwrap();
        assert_eq!(slice(text, "a").unwrap(), Some(net));
        assert_eq!(slice(text, "b").unwrap(), None);
        assert_eq!(slice(b"{}", "a").unwrap(), None);
    }

    #[test]
    fn a_note_names_its_entries_and_comes_back_from_its_text() {
        let node = Node {
            name: "node-a".into(),
            uid: "u".into(),
            boot: "b".into(),
        };
        let entry = |id: &str| Entry {
            id: id.into(),
            ..Entry::default()
        };
        let own = BTreeMap::from([(5, entry("3fa9c2d1e0")), (9, entry("claim"))]);
        let note = Note::new(node.clone(), 42, &own, &Last::default());
        let text = note.text();
        let expected =
            r#"{"node":"node-a","uid":"u","boot":"b","seq":42,"own":"5:3fa9c2d1,9:claim"}"#;
        assert_eq!(text, expected);
        assert_eq!(Note::parse(&text), Some(note.clone()));
        assert!(note.has(5, "3fa9c2d1ff") && note.has(9, "claim"));
        assert!(!note.has(5, "4") && !note.has(6, "3fa9c2d1e0") && !note.has(0, ""));
        let key = node.key();
        assert!(key.starts_with(KEY) && key.len() == KEY.len() + 16, "{key}");
        assert_eq!(Note::parse("{}"), None);
    }
}
