//! Forwarding for a container, allowed in the firewalls of the host.

use crate::name::IfName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Packet mark bit of an accepted packet of a container.
pub const MARK: u32 = 0x1000;

/// Forwarding for a container: packets that the host accepts, and packets that it drops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Firewall {
    /// Addresses of the container. Packets from them are accepted, and so are replies and
    /// redirected connections to them.
    pub addrs: Vec<IpAddr>,
    /// Isolation, which drops packets first.
    pub isolation: Option<Isolation>,
    /// The host's other firewall, which must accept the packets too.
    pub gate: Gate,
    /// Legacy iptables tables, which may drop as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub legacy: Vec<LegacyTable>,
    /// Network, container id and interface.
    pub owner: String,
}

/// The host's other firewall, which drops forwarded packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// Chains of nf_tables, including the iptables ones.
    Chains {
        /// The iptables chain of the administrator, which decides first.
        admin: String,
    },
    /// firewalld.
    Firewalld {
        /// The zone of packets from the addresses.
        zone: String,
    },
}

/// Drops packets between isolated bridges.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Isolation {
    /// The bridge.
    pub bridge: IfName,
    /// True to drop also packets between ports of the bridge.
    pub within: bool,
}

/// A legacy iptables table, which nf_tables does not show.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LegacyTable {
    /// True for IPv4, false for IPv6.
    pub is_ipv4: bool,
    /// Name, for example `filter`.
    pub name: String,
}

impl LegacyTable {
    /// Returns the program that changes the table.
    pub fn program(&self) -> &'static str {
        if self.is_ipv4 {
            "iptables-legacy"
        } else {
            "ip6tables-legacy"
        }
    }

    /// Returns the command that inserts a rule at position `place` of FORWARD that accepts packets
    /// with braid's mark. It waits 5 s for the tables' lock.
    pub fn insert(&self, place: usize) -> String {
        let (program, table) = (self.program(), &self.name);
        format!(
            "{program} -w 5 -t {table} -I FORWARD {place} -m mark --mark {MARK:#x}/{MARK:#x} -j ACCEPT"
        )
    }
}

impl fmt::Display for LegacyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -t {}", self.program(), self.name)
    }
}
