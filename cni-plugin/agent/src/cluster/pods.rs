//! A pod: the fields that calls read.

use super::objects::{Entry, Kept, Slim};
use braid_core::k8s::annotation::{default_network, networks};
use braid_core::k8s::{DEFAULT_NETWORK, NETWORKS, ObjectName, is_mirror_of};
use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Namespace of networks that a pod's default network is named in, unless the settings of calls
/// name another.
const DEFAULT_NAMESPACE: &str = "kube-system";

/// A Pod object.
pub type PodObject = Slim<PodSpec, PodStatus>;

/// `spec` of a Pod object.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    node_name: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    host_network: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_claims: Vec<Value>,
}

/// `status` of a Pod object.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    phase: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_claim_statuses: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extended_resource_claim_status: Option<Value>,
}

impl Kept for PodObject {
    fn name(&self) -> Option<ObjectName> {
        self.object_name()
    }

    fn entry(&self) -> Entry {
        self.entry_with(false)
    }
}

/// Returns the resource of [`PodObject`] for the API.
pub fn resource() -> ApiResource {
    ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&())
}

/// True if the pod has this uid. A static pod has another one for the kubelet than in the API, which
/// is in the annotations of its mirror pod.
pub fn is_of(entry: &Entry, uid: &str) -> bool {
    entry.uid == uid || is_mirror_of(&entry.annotations(), uid)
}

/// Returns the networks that the annotations of a pod name. Empty for an invalid annotation, which
/// the call reports.
pub fn networks_of(entry: &Entry, namespace: &str) -> Vec<ObjectName> {
    let annotations = entry.annotations();
    let mut names = Vec::new();
    let default = annotations
        .get(DEFAULT_NETWORK)
        .and_then(|text| default_network(text, DEFAULT_NAMESPACE).ok());
    names.extend(default.flatten().map(|selection| selection.object));
    let more = annotations
        .get(NETWORKS)
        .and_then(|text| networks(text, namespace).ok());
    for selection in more.unwrap_or_default() {
        names.push(selection.object);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(annotations: &Value) -> Entry {
        let metadata =
            json!({"name": "p", "namespace": "ns", "uid": "1", "annotations": annotations});
        let object: PodObject =
            serde_json::from_value(json!({"metadata": metadata, "spec": {}})).expect("an object");
        object.entry()
    }

    #[test]
    fn networks_of_both_annotations_are_found_and_invalid_ones_are_left_to_the_call() {
        let found = |annotations| -> Vec<String> {
            let names = networks_of(&entry(&annotations), "ns");
            names.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            found(json!({NETWORKS: "a, other/b@x", DEFAULT_NETWORK: "d"})),
            ["kube-system/d", "ns/a", "other/b"]
        );
        assert_eq!(found(json!({NETWORKS: "[{"})), [""; 0]);
        assert_eq!(found(Value::Null), [""; 0]);
    }

    #[test]
    fn a_pod_is_known_by_uid_and_a_static_one_by_the_uid_of_its_mirror() {
        let source = "kubernetes.io/config.source";
        let mirror = "kubernetes.io/config.mirror";
        assert!(is_of(&entry(&json!({})), "1"));
        assert!(!is_of(&entry(&json!({source: "api"})), "2"));
        assert!(!is_of(&entry(&json!({source: "file"})), "2"));
        assert!(!is_of(&entry(&json!({source: "file", mirror: "3"})), "2"));
        assert!(is_of(&entry(&json!({source: "file", mirror: "2"})), "2"));
    }
}
