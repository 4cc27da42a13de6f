//! Resource claims: shares of this node's network devices, with a bandwidth that the scheduler accounts
//! for (Kubernetes' dynamic resource allocation, `resource.k8s.io/v1`).
//!
//! ```text
//!  settings, links ─► nic: the offered ones, with a rate ─► slice: ResourceSlices and changes
//!  links of the node ─► devices ─► ResourceSlices ─► scheduler ─► ResourceClaim with an allocation
//!  ResourceClaim ─► Claim: shares of devices, and the parameters of each ─► networks of the pod
//!                └─► prepare: refuse the claim, or Prepared
//!  ResourceClaim without an allocation, links that the user names ─► allocation, for a dry run
//! ```

pub mod allocation;
pub mod attachments;
pub mod claim;
mod definition;
pub mod device;
pub mod device_status;
pub mod message;
pub mod network_keys;
pub mod nic;
pub mod parameters;
pub mod pod_claims;
pub mod prepare;
pub mod prepared;
pub mod quantity;
pub mod rate;
pub mod settings;
pub mod shared_parent;
pub mod slice;

/// Name of the driver, of its classes and of its group. Class of shares.
pub const DRIVER: &str = "braid.dev";
/// Class of devices that one pod has alone.
pub const WHOLE_CLASS: &str = "whole.braid.dev";
/// Capacity of a device in bits per second. The claimed part is reserved, and is the limit in each
/// direction.
pub const BANDWIDTH: &str = "bandwidth";
