//! A Node object: the ranges of its pods, its addresses, and a condition of its network.

use super::flannel::Annotations;
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{ApiResource, Object};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Address type that kubelets and routes use.
const INTERNAL: &str = "InternalIP";
/// Type of the condition that keeps pods away from a node without routes.
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// The fields of a Node object that the agent reads. All others, such as the list of images, are
/// skipped while parsing.
pub type NodeObject = Object<NodeSpec, NodeStatus>;

/// `spec` of a Node object.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct NodeSpec {
    /// Ranges of the node's pods, one per family at most.
    #[serde(rename = "podCIDRs", default)]
    pod_cidrs: Vec<String>,
}

/// `status` of a Node object.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct NodeStatus {
    /// Addresses of all types.
    #[serde(default)]
    addresses: Vec<TypedAddress>,
    /// Conditions of all types.
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct TypedAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// Returns the resource of [`NodeObject`] for the API.
pub fn resource() -> ApiResource {
    ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&())
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Seconds since 1970 of `metadata.creationTimestamp`.
    pub created: i64,
    /// `spec.podCIDRs`: as parsed, or the text that is not a range.
    pub ranges: Vec<Result<IpNet, String>>,
    /// Addresses of type `InternalIP`. Texts that are not addresses are left out.
    pub addresses: Vec<IpAddr>,
    /// True if the condition `NetworkUnavailable` is: no pod is placed on the node.
    pub is_network_unavailable: bool,
    /// Flannel's annotations.
    pub flannel: Annotations,
}

impl Node {
    /// Returns the node of an object; `None` without name or UID, which no API server sends.
    pub fn of(object: &NodeObject) -> Option<Self> {
        let metadata = &object.metadata;
        let mut ranges = Vec::new();
        for text in &object.spec.pod_cidrs {
            let range: Option<IpNet> = text.parse().ok();
            ranges.push(range.map(|range| range.trunc()).ok_or(text.clone()));
        }
        let mut addresses = Vec::new();
        for address in object.status.iter().flat_map(|status| &status.addresses) {
            if address.kind == INTERNAL
                && let Ok(parsed) = address.address.parse()
            {
                addresses.push(parsed);
            }
        }
        let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
        let is_network_unavailable = conditions
            .any(|condition| condition.kind == NETWORK_UNAVAILABLE && condition.status == "True");
        Some(Self {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            created: metadata.creation_timestamp.as_ref().map_or(0, seconds),
            ranges,
            addresses,
            is_network_unavailable,
            flannel: metadata
                .annotations
                .as_ref()
                .map(Annotations::of)
                .unwrap_or_default(),
        })
    }

    /// Returns the first address of the family of `range`; without one, the first address.
    pub fn gateway_of(&self, range: &IpNet) -> Option<IpAddr> {
        let is_ipv4 = matches!(range, IpNet::V4(_));
        let same = self.addresses.iter().find(|addr| addr.is_ipv4() == is_ipv4);
        same.or(self.addresses.first()).copied()
    }
}

fn seconds(time: &Time) -> i64 {
    time.0.as_second()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ranges_and_internal_addresses_are_read_and_all_else_is_skipped() {
        let object: NodeObject = serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "n1",
                "uid": "4f1c",
                "creationTimestamp": "1970-01-01T00:01:00Z",
            },
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.7/24", "fd00::/64", "x"]},
            "status": {
                "images": [{"names": ["a"], "sizeBytes": 1}],
                "addresses": [
                    {"type": "Hostname", "address": "n1"},
                    {"type": "InternalIP", "address": "10.99.0.11"},
                    {"type": "InternalIP", "address": "; reboot"},
                    {"type": "ExternalIP", "address": "203.0.113.1"},
                ],
                "conditions": [
                    {"type": "Ready", "status": "False"},
                    {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"},
                ],
            },
        }))
        .expect("an object");
        let node = Node::of(&object).expect("a node");
        assert_eq!(
            node,
            Node {
                name: "n1".into(),
                uid: "4f1c".into(),
                created: 60,
                ranges: vec![
                    Ok("10.244.1.0/24".parse().expect("a range")),
                    Ok("fd00::/64".parse().expect("a range")),
                    Err("x".into()),
                ],
                addresses: vec!["10.99.0.11".parse().expect("an address")],
                is_network_unavailable: true,
                flannel: Annotations::default(),
            }
        );
        let gateways = ["10.244.1.0/24", "fd00::/64"]
            .map(|range| node.gateway_of(&range.parse().expect("a range")));
        assert_eq!(
            gateways,
            [Some("10.99.0.11".parse().expect("an address")); 2]
        );
    }

    #[test]
    fn a_node_that_has_just_registered_has_no_ranges() {
        let object: NodeObject = serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1", "uid": "4f1c"},
            "spec": {},
        }))
        .expect("an object");
        let node = Node::of(&object).expect("a node");
        assert!(node.ranges.is_empty() && node.addresses.is_empty());
        assert!(!node.is_network_unavailable);
    }
}
