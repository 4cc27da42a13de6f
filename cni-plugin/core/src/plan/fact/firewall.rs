//! Forwarding of a container's packets through the firewalls of the host.

use crate::name::IfName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Bit of the packet mark that braid sets on the packets of containers that it accepts.
pub const MARK: u32 = 0x1000;

/// Forwarding for a container: the packets that the host accepts, and the packets that it drops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Firewall {
    /// Addresses of the container. The host accepts packets from these addresses. It also accepts
    /// replies and redirected connections to these addresses.
    pub addrs: Vec<IpAddr>,
    /// Isolation of the container's bridge. The rules that drop packets come before all rules that
    /// accept packets. `None` means no isolation.
    pub isolation: Option<Isolation>,
    /// The host's other firewall, which must accept the container's packets too.
    pub gate: Gate,
    /// Legacy iptables tables of the host, which may also drop the container's packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub legacy: Vec<LegacyTable>,
    /// Owner: network, container id and interface.
    pub owner: String,
}

/// The firewall of another program on the host, which may drop forwarded packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// Chains in nf_tables, including chains of iptables.
    Chains {
        /// The administrator's iptables chain, which decides before braid's rule.
        admin: String,
    },
    /// The daemon firewalld.
    Firewalld {
        /// The firewalld zone that gets the container's addresses as sources.
        zone: String,
    },
}

/// Isolation of a bridge: packets between it and other isolated bridges are dropped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Isolation {
    /// The isolated bridge.
    pub bridge: IfName,
    /// True to drop packets between ports of the bridge too.
    pub within: bool,
}

/// A legacy iptables table, which nf_tables does not show.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LegacyTable {
    /// True for IPv4, false for IPv6.
    pub is_ipv4: bool,
    /// Name of the table, for example `filter`.
    pub name: String,
}

impl LegacyTable {
    /// Returns the name of the program that changes the table.
    pub fn program(&self) -> &'static str {
        if self.is_ipv4 {
            "iptables-legacy"
        } else {
            "ip6tables-legacy"
        }
    }

    /// Returns the command that inserts a rule at position `place` of the FORWARD chain. The rule
    /// accepts packets with braid's mark, [`MARK`]. The command waits up to 5 s for the lock of
    /// iptables.
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
