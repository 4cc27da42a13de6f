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
    /// How many packets did not pass, or how many sockets got no link.
    pub refused: u64,
}

/// That such sockets of the container send nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XskGuard {
    /// The link below the container's, where what they send is dropped; none where they get no link to send through.
    pub below: Option<LinkRef>,
    /// Cookie of the container's network namespace.
    pub netns: u64,
    /// Network, container id and interface.
    pub owner: String,
}
