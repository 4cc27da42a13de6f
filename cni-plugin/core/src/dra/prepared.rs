//! Claims that this node has prepared: between the kubelet's request and the ADD of the pod.

use super::claim::Claim;
use super::shared_parent::ParentUse;
use serde::{Deserialize, Serialize};

/// A prepared claim. The node keeps it until the kubelet no longer needs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// The claim at the time of the kubelet's request.
    pub claim: Claim,
    /// Use of links by its attachments, one for each share. Links that were in the pod already have none.
    pub uses: Vec<ParentUse>,
}
