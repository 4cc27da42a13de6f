//! Links as steps name them, what they are made of, and their attributes.

use super::name::{IfName, Mac};
use super::step::Ns;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;

/// MTUs that a veth, a bridge and the children of a link can have, in bytes (`ETH_MIN_MTU` and `ETH_MAX_MTU`).
pub const ETHERNET_MTUS: RangeInclusive<u32> = 68..=65_535;

/// A link by namespace and name; its index is looked up while applying.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkRef {
    /// Where it is.
    pub ns: Ns,
    /// Its name.
    pub name: IfName,
}

impl LinkRef {
    /// A link of the host.
    pub fn host(name: IfName) -> Self {
        Self { ns: Ns::Host, name }
    }

    /// A link of the container.
    pub fn pod(name: IfName) -> Self {
        Self { ns: Ns::Pod, name }
    }
}

impl fmt::Display for LinkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.name, self.ns)
    }
}

/// A link to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Where it appears, under its final name.
    pub at: LinkRef,
    /// Hardware address; the kernel's choice where unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// MTU in bytes; the kernel's choice where unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Set up in the same request.
    pub up: bool,
    /// The bridge it becomes a port of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<IfName>,
    /// What it is.
    pub kind: LinkKind,
}

/// Kind of a link, with what only that kind has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkKind {
    /// One end of a pair; the other end appears elsewhere in the same request.
    Veth {
        /// The other end.
        peer: LinkRef,
        /// Its hardware address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer_mac: Option<Mac>,
    },
    /// A bridge.
    Bridge {
        /// Ports are separated by VLAN.
        vlan_filtering: bool,
    },
    /// A child with a hardware address of its own.
    Macvlan {
        /// The link below it.
        parent: LinkRef,
        /// Who may talk to whom.
        mode: MacvlanMode,
        /// Length of the queue for broadcasts in packets; the kernel's 1000 where unset (Linux 5.11).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bc_queue_len: Option<u32>,
    },
    /// A child that shares its parent's hardware address.
    Ipvlan {
        /// The link below it.
        parent: LinkRef,
        /// At which layer it switches.
        mode: IpvlanMode,
    },
    /// Gives back what is sent through it as if it had come in where it came from: a place to queue what comes in.
    Ifb,
    /// A link that an earlier plugin or the kernel made; only in facts.
    Other(String),
}

impl LinkKind {
    /// The kernel's word for it.
    pub fn name(&self) -> &str {
        match self {
            Self::Veth { .. } => "veth",
            Self::Bridge { .. } => "bridge",
            Self::Macvlan { .. } => "macvlan",
            Self::Ipvlan { .. } => "ipvlan",
            Self::Ifb => "ifb",
            Self::Other(kind) => kind,
        }
    }
}

/// Modes of a macvlan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the kernel's words, as in ip-link(8)")]
pub enum MacvlanMode {
    Private,
    Vepa,
    Bridge,
    Passthru,
}

impl MacvlanMode {
    /// The word in configurations and in `ip link`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Vepa => "vepa",
            Self::Bridge => "bridge",
            Self::Passthru => "passthru",
        }
    }
}

/// Modes of an ipvlan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the kernel's words, as in ip-link(8)")]
pub enum IpvlanMode {
    L2,
    L3,
    L3s,
}

impl IpvlanMode {
    /// The word in configurations and in `ip link`.
    pub fn name(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::L3 => "l3",
            Self::L3s => "l3s",
        }
    }
}

/// One attribute of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkAttr {
    /// Administratively up or down.
    Up(bool),
    /// Hardware address.
    Mac(Mac),
    /// MTU in bytes.
    Mtu(u32),
    /// Receives everything.
    Promisc(bool),
    /// Receives all multicast.
    AllMulti(bool),
    /// Length of the transmit queue in packets.
    TxQueueLen(u32),
    /// Largest packet that the stack hands over in one piece, in bytes.
    GsoMaxSize(u32),
    /// The hardware address that the link has already: writing it makes the kernel tell the neighbours of the link's
    /// addresses, where `arp_notify` and `ndisc_notify` ask for it (`NETDEV_CHANGEADDR`).
    Announce(Mac),
    /// Text that tells whose the link is, 254 bytes at most. The request that makes a link passes over it in silence
    /// (v6.12 net/core/rtnetlink.c, `rtnl_create_link()`).
    Alias(String),
    /// Bridge port: frames may leave where they came from.
    Hairpin(bool),
    /// Bridge port: no frames between isolated ports.
    Isolated(bool),
    /// The sysctl `net.ipv4.conf.<link>.arp_notify`: neighbours hear of an address when the link comes up with it. As an
    /// attribute it is set in the same send as the address, without a visit to the namespace's `/proc/sys`.
    ArpNotify(bool),
}
