//! Device of a resource claim on which a network of a pod is.

use super::ObjectName;
use serde::{Deserialize, Serialize};

/// A device that the scheduler allocated to a request of a `ResourceClaim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedDevice {
    /// The claim.
    pub claim: ObjectName,
    /// `metadata.uid` of the claim.
    pub claim_uid: String,
    /// Name of the request, or `<request>/<alternative>` for a request with `firstAvailable`.
    pub request: String,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// Id of the share; `None` if the request has the device alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
}
