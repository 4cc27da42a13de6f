//! What an attachment asks of nf_tables.

use super::link::LinkRef;
use super::name::{IfName, Mac};
use super::shaping::{Shaper, Subnets};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;
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
    /// Tables of the older iptables, which may drop as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub legacy: Vec<Legacy>,
    /// Network, container id and interface.
    pub owner: String,
}

/// A table of the older iptables, which nf_tables does not show.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Legacy {
    /// For IPv4; otherwise for IPv6.
    pub is_ipv4: bool,
    /// Its name, for example `filter`.
    pub name: String,
}

impl Legacy {
    /// The program that changes it.
    pub fn program(&self) -> &'static str {
        if self.is_ipv4 { "iptables-legacy" } else { "ip6tables-legacy" }
    }

    /// The command that lets through what braid marks, as rule number `place` of FORWARD. It waits 5 s for the tables' lock.
    pub fn insert(&self, place: usize) -> String {
        let (program, table) = (self.program(), &self.name);
        format!("{program} -w 5 -t {table} -I FORWARD {place} -m mark --mark {MARK:#x}/{MARK:#x} -j ACCEPT")
    }
}

impl fmt::Display for Legacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -t {}", self.program(), self.name)
    }
}

/// The bit of a packet's mark that says that a container's packet is let through.
pub const MARK: u32 = 0x1000;

impl Firewall {
    /// Whether also what one port of the bridge sends another is dropped.
    pub fn is_within(&self) -> bool {
        self.isolation.as_ref().is_some_and(|isolation| isolation.within)
    }
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

/// What packet sockets may send through a link of the container: they can pass its queue by (`PACKET_QDISC_BYPASS`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketGuard {
    /// The link.
    pub at: LinkRef,
    /// How much.
    pub limit: PacketLimit,
    /// Which packets; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Subnets>,
}

impl PacketGuard {
    /// For what passes a container's shaper: somewhat more than that lets through. None at rates beyond the kernel's numbers
    /// (140 Gbit/s), which no link has.
    pub fn of(shaper: &Shaper, subnets: Option<&Subnets>) -> Option<Self> {
        /// `nft_limit` counts so many nanoseconds for each byte of rate and burst, in 64 bits.
        const SECOND_NS: u64 = 1_000_000_000;
        let rate = (shaper.guard_bps() / 8).max(1);
        let burst = u32::try_from(shaper.rate.burst / 8).unwrap_or(u32::MAX);
        rate.checked_add(u64::from(burst))?.checked_mul(SECOND_NS)?;
        let limit = PacketLimit { rate, burst };
        Some(Self { at: shaper.at.clone(), limit, subnets: subnets.cloned() })
    }
}

/// How much packet sockets may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketLimit {
    /// Bytes per second.
    pub rate: u64,
    /// How many bytes may come at once, beside those of one second (v6.12 `net/netfilter/nft_limit.c`).
    pub burst: u32,
}

/// A [`PacketGuard`] as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketGuardFact {
    /// How much passes.
    pub limit: PacketLimit,
    /// How many packets did not.
    pub dropped: u64,
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
