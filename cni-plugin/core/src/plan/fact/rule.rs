//! A policy routing rule.

use crate::name::{IfName, Ns};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Routes packets from or to a net by a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Namespace of the rule.
    pub ns: Ns,
    /// Packets that the rule matches.
    pub of: Packets,
    /// The table.
    pub table: u32,
    /// Input link; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iif: Option<IfName>,
    /// Ignores routes of the table with a prefix of at most this length (`suppress_prefixlength`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress: Option<u32>,
    /// Priority. `None` means the kernel's choice: before the first rule after the local table's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
}

/// Packets selected by an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packets {
    /// The source is in this net.
    From(IpNet),
    /// The destination is in this net.
    To(IpNet),
}
