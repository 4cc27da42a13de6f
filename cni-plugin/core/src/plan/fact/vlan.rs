//! A VLAN of a bridge port.

use serde::{Deserialize, Serialize};

/// A VLAN on a bridge port, with its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Vlan {
    /// VLAN ID, 1 to 4094.
    pub id: u16,
    /// True if untagged received frames belong to this VLAN.
    pub pvid: bool,
    /// True if frames of this VLAN leave untagged.
    pub untagged: bool,
}
