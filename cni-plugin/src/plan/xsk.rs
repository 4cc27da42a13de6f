//! What `AF_XDP` sockets of a container send, where nothing at its own interface sees it.

use super::link::LinkRef;
use serde::{Deserialize, Serialize};

/// That such sockets of the container send nothing that passes a link of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XskGuard {
    /// The link below the container's.
    pub below: LinkRef,
    /// Network, container id and interface.
    pub owner: String,
}
