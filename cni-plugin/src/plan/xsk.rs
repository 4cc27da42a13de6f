//! What `AF_XDP` sockets of a container send, where nothing at its own interface sees it.

use super::link::LinkRef;
use serde::{Deserialize, Serialize};

/// An attachment whose sockets are held, as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Cookie of its network namespace.
    pub netns: u64,
    /// Network, container id and interface.
    pub owner: String,
    /// How many packets did not pass.
    pub dropped: u64,
}

/// That such sockets of the container send nothing that passes a link of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XskGuard {
    /// The link below the container's.
    pub below: LinkRef,
    /// Cookie of the container's network namespace.
    pub netns: u64,
    /// Network, container id and interface.
    pub owner: String,
}
