//! What an attachment asks of nf_tables.

use super::name::{IfName, Mac};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What the host forwards for a container, and what not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Firewall {
    /// Of the container: what these send is let through, and what answers them or was led to them.
    pub addrs: Vec<IpAddr>,
    /// What is dropped before.
    pub isolation: Option<Isolation>,
    /// Who is to let them through.
    pub gate: Gate,
    /// Network, container id and interface.
    pub owner: String,
}

/// Who else drops what the host forwards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// Chains of nf_tables, those of iptables among them.
    Chains {
        /// The chain of iptables that decides before.
        admin: String,
    },
    /// firewalld.
    Firewalld {
        /// The zone of all that the addresses send.
        zone: String,
    },
}

/// Drops what comes from one such bridge for another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Isolation {
    /// The bridge.
    pub bridge: IfName,
    /// Also what comes from one port of the bridge for another.
    pub within: bool,
}

/// Masquerading of one source address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Masquerade {
    /// The container's address.
    pub source: IpAddr,
    /// Its network, which is reached without masquerading.
    pub network: IpNet,
    /// Whose it is: network, container id and interface.
    pub owner: String,
}

/// The only hardware address that may send through a bridge port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacCheck {
    /// The host end of the container's veth.
    pub port: IfName,
    /// The container's hardware address.
    pub mac: Mac,
    /// Whose it is: network, container id and interface.
    pub owner: String,
}
