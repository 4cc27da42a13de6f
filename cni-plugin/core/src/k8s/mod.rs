//! Kubernetes pod networks as plain values: the networks that a pod selects in its annotations,
//! their configurations, and the status annotation.
//!
//! ```text
//!  pod ─► annotation: selections ─┐
//!  NADs, files on disk ───────────┴─► select ─► networks: configuration, interface, requests
//!  results ─► status ─► k8s.v1.cni.cncf.io/network-status
//!  source ─ pods and NADs from the API or from files
//! ```

pub mod annotation;
pub mod claimed;
pub mod default_route;
pub mod device_info;
pub mod dynamic;
pub mod edit;
pub mod interface_event;
pub mod ipam_claim;
pub mod kubeconfig;
pub mod multus_cache;
pub mod nad;
pub mod names;
pub mod network;
pub mod object;
pub mod on_disk;
pub mod request;
pub mod requested_networks;
pub mod runtime_annotations;
pub mod select;
pub mod selection;
pub mod settings;
pub mod source;
pub mod status;
pub mod takeover;

use crate::cni::Json;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Pod annotation that selects networks.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Pod annotation with the networks that the pod is attached to.
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// Pod annotation that replaces the default network.
pub const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
/// NetworkAttachmentDefinition annotation with the resource that provides the network's device.
pub const RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";

/// Annotations of a static pod's mirror pod with the uid of the static pod. The kubelet copies `hash`
/// to `mirror` when it creates the mirror pod.
const MIRROR: [&str; 2] = ["kubernetes.io/config.mirror", "kubernetes.io/config.hash"];

/// A namespaced object, written `<namespace>/<name>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod, with the fields that its networks depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.uid`; of a static pod that the runtime describes, the uid that the kubelet uses.
    pub uid: String,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// Names of the pod's resource claims, including claims generated from a template.
    pub resource_claims: Vec<String>,
    /// `spec.nodeName`.
    pub node: String,
    /// True if all containers have terminated for good.
    pub is_over: bool,
}

impl Pod {
    /// True for a static pod, which the kubelet reads from a file or URL. The uid of its mirror pod
    /// in the API differs from the uid that the kubelet reports.
    pub fn is_static(&self) -> bool {
        self.annotations
            .get("kubernetes.io/config.source")
            .is_some_and(|source| source != "api")
    }

    /// True if the kubelet's pod with this uid is this pod, or the static pod that it mirrors.
    pub fn is_of(&self, uid: &str) -> bool {
        self.uid == uid || is_mirror_of(&self.annotations, uid)
    }
}

/// True if a pod with these annotations mirrors the static pod with this uid.
pub fn is_mirror_of(annotations: &BTreeMap<String, String>, uid: &str) -> bool {
    MIRROR.iter().any(|key| {
        annotations
            .get(*key)
            .is_some_and(|mirrored| mirrored == uid)
    })
}

/// A NetworkAttachmentDefinition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nad {
    /// Namespace and name.
    pub name: ObjectName,
    /// `spec.config`; empty if the configuration is in a file on the node.
    pub config: String,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
}

/// An IPAMClaim, `k8s.cni.cncf.io/v1alpha1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IpamClaim {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.network`.
    pub network: String,
    /// `spec.interface`.
    pub interface: String,
    /// `metadata.resourceVersion`. The API refuses a write with an outdated version.
    pub version: String,
    /// `status.ips`: addresses with prefix length.
    pub ips: Vec<String>,
    /// `status.ownerPod`: the pod that uses the addresses, or used them last.
    pub owner_pod: Option<String>,
    /// `status.conditions`.
    pub conditions: Vec<Json>,
}

/// Returns the string at `key`; `None` if the key is absent or its value is not a string.
pub fn text_at<'a>(json: &'a Json, key: &str) -> Option<&'a str> {
    json.get(key)?.as_str()
}
