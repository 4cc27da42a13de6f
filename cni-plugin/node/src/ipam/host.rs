//! The host, as the caller lends it to the verbs of an IPAM.

use super::liveness::Liveness;
use crate::log::Log;
use braid_core::cni::Attachment;
use std::path::Path;

/// The host, as the caller lends it to the verbs.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// Folder of the index, normally [`STATE_DIR`](super::host_local::STATE_DIR).
    pub state_dir: &'a Path,
    /// Knowledge of the owners that can still be alive.
    pub liveness: &'a dyn Liveness,
    /// The container's interface, where the call is about one.
    pub attachment: Option<&'a Attachment>,
    /// Receiver of sentences for the operator.
    pub log: &'a Log,
}
