//! Kubernetes' side of a pod's networks, as values: what its annotation asks for, what became of
//! it.
//!
//! ```text
//!  pod ─► annotation: selections ─┐
//!  NADs, files on disk ───────────┴─► select ─► networks: configuration, interface, what only this pod asked for
//!  results ─► status ─► k8s.v1.cni.cncf.io/network-status
//!  source ─ where pods and NADs come from: the API, files
//! ```

pub mod annotation;
pub mod default_route;
pub mod device_info;
pub mod dynamic;
pub mod ipam_claim;
pub mod lint;
pub mod multus_cache;
pub mod nad;
pub mod names;
pub mod network;
pub mod on_disk;
pub mod request;
pub mod requested_networks;
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

/// Annotation of a pod that selects networks.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Annotation of a pod that says what it was attached to.
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// Annotation of a pod that replaces the default network.
pub const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
/// Annotation of a NetworkAttachmentDefinition that names a resource of device plugins.
pub const RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";

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

/// A pod, as far as its networks depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// Names of the resource claims of the pod, generated ones included, in its namespace.
    pub resource_claims: Vec<String>,
    /// `spec.nodeName`.
    pub node: String,
    /// True if all its containers have ended for good.
    pub is_over: bool,
}

impl Pod {
    /// True if the pod comes from a file or URL of the kubelet: its mirror has another uid than the
    /// kubelet says.
    pub fn is_static(&self) -> bool {
        self.annotations
            .get("kubernetes.io/config.source")
            .is_some_and(|source| source != "api")
    }
}

/// A NetworkAttachmentDefinition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nad {
    /// Namespace and name.
    pub name: ObjectName,
    /// `spec.config`; empty where the network is one of the node's files.
    pub config: String,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
}

/// An IPAMClaim, `k8s.cni.cncf.io/v1alpha1`.
#[derive(Debug, Clone, PartialEq)]
pub struct IpamClaim {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.network`.
    pub network: String,
    /// `spec.interface`.
    pub interface: String,
    /// `metadata.resourceVersion`: a write to another version of it is refused.
    pub version: String,
    /// `status.ips`, with prefix.
    pub ips: Vec<String>,
    /// `status.ownerPod`: the pod that has the addresses, or had them last.
    pub owner_pod: Option<String>,
    /// `status.conditions`.
    pub conditions: Vec<Json>,
}
