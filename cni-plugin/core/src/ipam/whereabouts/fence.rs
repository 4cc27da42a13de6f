//! Nodes without running containers, and the change of a pool that frees the addresses of such a node.

use super::change::annotation;
use super::pool::{Entry, Metadata, Node};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Taint of a node that an administrator has declared to be shut down.
pub(super) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A Node, as read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundNode {
    /// Uid of the object.
    pub uid: String,
    /// Id of the boot in which its kubelet wrote the status last.
    pub boot: String,
    /// True if it has the taint `node.kubernetes.io/out-of-service`.
    pub is_out_of_service: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    taints: Option<Vec<Taint>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    node_info: NodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "bootID")]
    boot: String,
}

impl FoundNode {
    /// Parses the object.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        let object: Object = serde_json::from_slice(bytes)?;
        let mut taints = object.spec.taints.iter().flatten();
        Ok(Self {
            uid: object.metadata.uid,
            boot: object.status.node_info.boot,
            is_out_of_service: taints.any(|taint| taint.key == OUT_OF_SERVICE),
        })
    }
}

/// State of the node that wrote an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// Its Node object exists, so its containers may run.
    Present,
    /// An administrator says that it is shut down.
    OutOfService,
    /// The Node object is another one, after another boot.
    Replaced,
    /// Its Node object is gone.
    Missing,
}

impl NodeState {
    /// Judges a node by the Node object of its name.
    ///
    /// Another Node object in the same boot is not enough, as a kubelet registers its node again after
    /// the object was deleted. Neither is another boot id, which a kubelet reports only after its start.
    pub fn of(node: &Node, found: Option<&FoundNode>) -> Self {
        match found {
            None => Self::Missing,
            Some(found) if found.is_out_of_service => Self::OutOfService,
            Some(found) if found.uid != node.uid && found.boot != node.boot => Self::Replaced,
            Some(_) => Self::Present,
        }
    }

    /// Returns the state's name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::OutOfService => "out of service",
            Self::Replaced => "replaced",
            Self::Missing => "missing",
        }
    }
}

/// True if no container of the node that wrote an annotation can run.
pub fn is_gone(node: &Node, found: Option<&FoundNode>) -> bool {
    NodeState::of(node, found) != NodeState::Present
}

/// Returns the change of a pool that removes a node's annotation and these of its `entries`. It fails if
/// one of them has changed.
pub fn patch(uid: &str, node: &Node, text: &str, entries: &BTreeMap<u128, Entry>) -> Value {
    let path = annotation(&node.key());
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": uid}),
        json!({"op": "test", "path": path, "value": text}),
    ];
    for (offset, entry) in entries {
        let path = format!("/spec/allocations/{offset}");
        patch.push(json!({"op": "test", "path": format!("{path}/id"), "value": entry.id}));
        patch.push(json!({"op": "remove", "path": path}));
    }
    patch.push(json!({"op": "remove", "path": path}));
    Value::Array(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_gone_without_its_object_or_by_the_taint_or_after_another_boot() {
        let node = Node {
            name: "a".into(),
            uid: "u1".into(),
            boot: "b1".into(),
        };
        let found = |uid: &str, boot: &str, taint: &str| {
            let object = json!({
                "metadata": {"uid": uid},
                "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
                "status": {"nodeInfo": {"bootID": boot}},
            });
            FoundNode::parse(object.to_string().as_bytes()).unwrap()
        };
        assert!(is_gone(&node, None));
        for (uid, boot, taint, expected) in [
            ("u1", "b1", "node.kubernetes.io/unreachable", false),
            ("u1", "b1", OUT_OF_SERVICE, true),
            // The kubelet has reported another boot, and no ADD followed.
            ("u1", "b2", "", false),
            // The object was deleted, and the kubelet has made it again.
            ("u2", "b1", "", false),
            ("u2", "b2", "", true),
        ] {
            let is_gone = is_gone(&node, Some(&found(uid, boot, taint)));
            assert_eq!(is_gone, expected, "{uid} {boot} {taint}");
        }
        assert!(FoundNode::parse(br#"{"spec": {"taints": null}}"#).is_ok());
    }
}
