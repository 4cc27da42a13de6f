//! Events about networks that give pods on two nodes the same address: one for each network.

use super::{ACTION, MOST, Post, Text};
use crate::cluster::index::Index;
use crate::cluster::objects::Objects;
use braid_core::k8s::{ObjectName, object};
use braid_core::lint::range_on_every_node;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;

const REASON: &str = "RangeOnEveryNode";
/// IPAM type of networks with a range on each node.
const HOST_LOCAL: &str = "host-local";

/// Networks with an event.
#[derive(Debug, Default)]
pub struct NetworkBook {
    /// Their uids.
    known: BTreeSet<String>,
}

impl NetworkBook {
    /// Returns the events about networks that have none yet, if this node reports about networks.
    pub fn posts(
        &mut self,
        networks: &Objects,
        nodes: &Index,
        (node, now): (&str, Timestamp),
    ) -> Vec<Post> {
        if !is_reporter(nodes, node) || !networks.is_complete() {
            return Vec::new();
        }
        let before = std::mem::take(&mut self.known);
        let mut posts = Vec::new();
        for (name, entry) in networks.all() {
            if before.contains(&entry.uid) {
                self.known.insert(entry.uid.clone());
            } else if posts.len() < MOST
                && let Some(fault) = fault(name, &entry.text)
            {
                self.known.insert(entry.uid.clone());
                let text = Text {
                    action: ACTION,
                    kind: "Warning",
                    reason: REASON,
                    note: &fault,
                };
                let event = text.event(of_network(name, &entry.uid), node, now);
                posts.push(Post { event });
            }
        }
        posts
    }
}

/// True if a node reports about networks: it is the first one of several, by name. On a single node no
/// address is in two places.
pub fn is_reporter(nodes: &Index, node: &str) -> bool {
    let mut names = nodes.nodes().map(|node| &*node.name);
    names.next() == Some(node) && names.next().is_some()
}

/// Returns the reference of a network.
pub(super) fn of_network(name: &ObjectName, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("k8s.cni.cncf.io/v1".to_owned()),
        kind: Some("NetworkAttachmentDefinition".to_owned()),
        namespace: Some(name.namespace.clone()),
        name: Some(name.name.clone()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

fn fault(name: &ObjectName, text: &str) -> Option<String> {
    // Most networks need no parser.
    if !text.contains(HOST_LOCAL) {
        return None;
    }
    range_on_every_node(&object::nad(name, text.as_bytes()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::networks::NetworkObject;
    use crate::cluster::node::NodeObject;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    fn nodes(names: &[&str]) -> Index {
        let mut index = Index::default();
        for name in names {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name}, "spec": {}});
            let node: NodeObject = serde_json::from_value(node).expect("a node");
            index.apply(&node);
        }
        index
    }

    fn network(name: &str, kind: &str, ipam: &Value) -> NetworkObject {
        let config = json!({"cniVersion": "1.0.0", "type": kind, "master": "eth1", "ipam": ipam});
        let object = json!({
            "metadata": {"name": name, "namespace": "lans", "uid": name},
            "spec": {"config": config.to_string()},
        });
        serde_json::from_value(object).expect("a network")
    }

    /// Returns a list of networks: one that is faulty, and others that are not.
    fn networks() -> Objects {
        let local = json!({"type": "host-local", "subnet": "10.0.0.0/24"});
        let mut networks = Objects::default();
        networks.update(&Event::<NetworkObject>::Init);
        for (name, kind, ipam) in [
            ("lan", "macvlan", &local),
            ("bridge", "bridge", &local),
            (
                "pool",
                "macvlan",
                &json!({"type": "whereabouts", "range": "10.0.0.0/24"}),
            ),
            (
                "wrong",
                "macvlan",
                &json!({"type": "host-local", "subnet": "x"}),
            ),
        ] {
            networks.update(&Event::InitApply(network(name, kind, ipam)));
        }
        networks.update(&Event::<NetworkObject>::InitDone);
        networks
    }

    #[test]
    fn a_network_has_one_event_by_the_first_of_several_nodes() {
        let (networks, now) = (networks(), Timestamp::UNIX_EPOCH);
        for (node, names) in [("b", &["a", "b"][..]), ("a", &["a"]), ("a", &[])] {
            let posts = NetworkBook::default().posts(&networks, &nodes(names), (node, now));
            assert!(posts.is_empty(), "{node} of {names:?}");
        }
        let mut book = NetworkBook::default();
        let both = nodes(&["a", "b"]);
        let posts = book.posts(&networks, &both, ("a", now));
        let [Post { event }] = &posts[..] else {
            panic!("{posts:?}");
        };
        let about = event.regarding.as_ref().expect("an object");
        assert_eq!(about.name.as_deref(), Some("lan"));
        assert_eq!(event.reason.as_deref(), Some(REASON));
        let note = event.note.as_deref().unwrap_or_default();
        assert!(
            note.starts_with("each node gives out 10.0.0.1-10.0.0.254"),
            "{note}"
        );
        assert!(book.posts(&networks, &both, ("a", now)).is_empty());
        assert_eq!(book.known, ["lan".to_owned()].into());
        let mut none = Objects::default();
        none.update(&Event::<NetworkObject>::Init);
        none.update(&Event::<NetworkObject>::InitDone);
        assert!(book.posts(&none, &both, ("a", now)).is_empty());
        assert!(
            book.known.is_empty(),
            "a network that is made again has an event again"
        );
    }
}
