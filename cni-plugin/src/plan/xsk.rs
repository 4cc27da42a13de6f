//! `AF_XDP` sockets of a container, of which nothing at its own interface sees what they send.

use super::link::LinkRef;
use serde::{Deserialize, Serialize};

/// An attachment whose sockets are held, as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Cookie of its network namespace.
    pub netns: u64,
    /// Index of the only link that they can't have; 0 where they have none of the namespace.
    pub link: u32,
    /// Network, container id and interface.
    pub owner: String,
    /// How many sockets got no link.
    pub refused: u64,
}

/// The refusal of a link to such sockets of the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XskGuard {
    /// The link below the container's, where an earlier version dropped what they sent instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<LinkRef>,
    /// Cookie of the container's network namespace.
    pub netns: u64,
    /// Network, container id and interface.
    pub owner: String,
}
