//! A VLAN of a bridge port.

use serde::{Deserialize, Serialize};

/// A VLAN and its flags on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Vlan {
    /// VLAN ID, 1 to 4094.
    pub id: u16,
    /// True if untagged received frames belong to it.
    pub pvid: bool,
    /// True if its frames leave untagged.
    pub untagged: bool,
}
