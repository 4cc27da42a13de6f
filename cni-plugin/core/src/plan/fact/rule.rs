//! A policy routing rule.

use crate::name::{IfName, Ns};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A policy routing rule, which selects the routing table for packets from or to a subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Namespace of the rule.
    pub ns: Ns,
    /// Packets that the rule matches, by source or destination.
    pub of: Packets,
    /// Routing table for the matched packets.
    pub table: u32,
    /// Input link; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iif: Option<IfName>,
    /// Ignores routes of the table with a prefix of at most this length (`suppress_prefixlength`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress: Option<u32>,
    /// Priority of the rule. `None` lets the kernel choose. It puts the rule directly before the
    /// second rule of the list, so only the local table's rule precedes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
}

/// Packets selected by source or destination address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packets {
    /// Packets with a source address in this subnet.
    From(IpNet),
    /// Packets with a destination address in this subnet.
    To(IpNet),
}
