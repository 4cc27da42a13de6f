//! Links as steps name them, and what they are made of.

mod fact;
mod print;
mod tap;

pub use fact::{Hardware, LinkFact};
pub use tap::{TAP_MTUS, Tap};

use super::{State, Verb, found, refuse_if};
use crate::name::{IfName, Mac, Ns};
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;

/// MTUs that a veth, a netkit, a bridge and the children of a link can have, in bytes
/// (`ETH_MIN_MTU` and `ETH_MAX_MTU`).
pub const ETHERNET_MTUS: RangeInclusive<u32> = 68..=65_535;

/// A link by namespace and name; its index is looked up while applying.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkRef {
    /// The namespace that it is in.
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
    /// The namespace it appears in, and its final name.
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
    /// Its kind.
    pub kind: LinkKind,
}

impl Link {
    /// A link of which nothing but its place is known, to be taken away.
    pub fn any(at: LinkRef) -> Self {
        Self {
            at,
            mac: None,
            mtu: None,
            up: false,
            master: None,
            kind: LinkKind::Other(String::new()),
        }
    }

    /// The links that come and go with it: itself, and its peer.
    pub fn ends(&self) -> impl Iterator<Item = &LinkRef> {
        std::iter::once(&self.at).chain(self.kind.peer())
    }

    /// The same pair as its end in the container names it, to be taken away; none where it is no
    /// pair of the host with the container.
    pub fn from_pod(&self) -> Option<Self> {
        let end = self
            .kind
            .peer()
            .filter(|peer| (self.at.ns, peer.ns) == (Ns::Host, Ns::Pod))?;
        let mut pair = Self {
            kind: self.kind.clone(),
            ..Self::any(end.clone())
        };
        if let LinkKind::Veth { peer, peer_mac } | LinkKind::Netkit { peer, peer_mac, .. } =
            &mut pair.kind
        {
            (*peer, *peer_mac) = (self.at.clone(), None);
        }
        Some(pair)
    }

    /// The end on the host of a pair that is named by its end in the container.
    pub fn host_end(&self) -> Option<&LinkRef> {
        self.kind
            .peer()
            .filter(|peer| (self.at.ns, peer.ns) == (Ns::Pod, Ns::Host))
    }

    /// True if both name the same link by namespace and name, or the same pair from its two ends.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_turned =
            || self.kind.peer() == Some(&other.at) && other.kind.peer() == Some(&self.at);
        self.at == other.at && self.host_end() == other.host_end() || is_turned()
    }

    /// `Ok` where it is what it should be; otherwise what differs.
    fn is_kind(&self, fact: &LinkFact, facts: &Facts) -> Result<(), String> {
        match &self.kind {
            LinkKind::Veth { peer, .. } => self.is_paired(fact, peer, facts),
            LinkKind::Netkit { peer, mode, .. } => {
                self.is_paired(fact, peer, facts)?;
                self.has_mode(fact, mode.name())
            }
            LinkKind::Macvlan { mode, .. } => self.has_mode(fact, mode.name()),
            LinkKind::Ipvlan { mode, .. } => self.has_mode(fact, mode.name()),
            LinkKind::Vlan { id, .. } => {
                let found = fact
                    .vlan_id
                    .map_or_else(|| "unknown".to_owned(), |found| found.to_string());
                refuse_if(fact.vlan_id != Some(*id), || {
                    format!("link {} is VLAN {found}, not {id}", self.at)
                })
            }
            LinkKind::Tap(_) => self.has_mode(fact, "tap"),
            LinkKind::Vrf { table } => {
                let found = fact.vrf_table;
                refuse_if(found.is_some_and(|found| found != *table), || {
                    format!("VRF {} has no table {table}", self.at)
                })
            }
            LinkKind::Bridge { .. } | LinkKind::Dummy | LinkKind::Ifb | LinkKind::Other(_) => {
                Ok(())
            }
        }
    }

    fn is_paired(&self, fact: &LinkFact, peer: &LinkRef, facts: &Facts) -> Result<(), String> {
        let (kind, other) = (self.kind.name(), found(peer, facts)?);
        refuse_if(other.kind != kind, || {
            format!("link {peer} is of kind {:?}, not {kind}", other.kind)
        })?;
        let paired = fact.parent == Some(other.index) && other.parent == Some(fact.index);
        refuse_if(!paired, || {
            format!("links {} and {peer} are no pair", self.at)
        })
    }

    fn has_mode(&self, fact: &LinkFact, mode: &str) -> Result<(), String> {
        let found = fact.mode.unwrap_or("unknown");
        refuse_if(fact.mode != Some(mode), || {
            format!("link {} has mode {found:?}, not {mode}", self.at)
        })
    }
}

impl State for Link {
    fn ns(&self) -> Ns {
        self.at.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match verb {
            Verb::Add => print::print_add(self, f),
            Verb::Del => {
                write!(f, "ip link del {}", self.at.name)?;
                self.host_end()
                    .map_or(Ok(()), |end| write!(f, " # and {} of {}", end.name, end.ns))
            }
        }
    }

    fn needs(&self) -> Vec<Need> {
        let parent = self.kind.parent().cloned();
        let master = self.master.clone().map(|name| LinkRef {
            ns: self.at.ns,
            name,
        });
        self.ends()
            .cloned()
            .chain(parent)
            .chain(master)
            .map(Need::Link)
            .collect()
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let fact = found(&self.at, facts)?;
        let kind = self.kind.name();
        refuse_if(fact.kind != kind, || {
            format!("link {} is of kind {:?}, not {kind}", self.at, fact.kind)
        })?;
        if let Some(master) = &self.master {
            let bridge = found(
                &LinkRef {
                    ns: self.at.ns,
                    name: master.clone(),
                },
                facts,
            )?;
            refuse_if(fact.master != Some(bridge.index), || {
                format!("link {} is no port of {master}", self.at)
            })?;
        }
        self.is_kind(fact, facts)?;
        refuse_if(self.up && !fact.up, || format!("link {} is down", self.at))?;
        // A shared bridge may have had an address before, and a later plugin may give the
        // container's end another one.
        let fixed = self.at.ns == Ns::Host && !matches!(self.kind, LinkKind::Bridge { .. });
        match self.mac {
            Some(mac) if fixed && fact.mac != Some(mac) => {
                Err(format!("link {} does not have address {mac}", self.at))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn is_gone(&self, facts: &Facts) -> Result<(), String> {
        refuse_if(facts.link(&self.at).is_some(), || {
            format!("link {} is still there", self.at)
        })
    }

    fn predict(&self, facts: &mut Facts) {
        // A child has its parent's MTU unless it is given another.
        let below = self.kind.parent();
        let parent = below.and_then(|below| facts.links.get(below));
        let mtu = self.mtu.or(parent.map(|parent| parent.mtu)).unwrap_or(1500);
        let mut fact = LinkFact::planned(self.kind.name(), self.mac, mtu, self.up);
        if let (LinkKind::Macvlan { .. } | LinkKind::Vlan { .. }, Some(parent)) =
            (&self.kind, parent)
        {
            fact.mtus = *fact.mtus.start()..=parent.mtu;
        }
        match &self.kind {
            LinkKind::Veth { peer, peer_mac } => {
                facts.links.insert(
                    peer.clone(),
                    LinkFact::planned("veth", *peer_mac, fact.mtu, false),
                );
            }
            LinkKind::Netkit {
                peer,
                peer_mac,
                mode,
            } => {
                fact.mode = Some(mode.name());
                let other = LinkFact {
                    mode: fact.mode,
                    ..LinkFact::planned("netkit", *peer_mac, fact.mtu, false)
                };
                facts.links.insert(peer.clone(), other);
            }
            LinkKind::Bridge { vlan_filtering } => fact.vlan_filtering = *vlan_filtering,
            LinkKind::Macvlan { mode, .. } => fact.mode = Some(mode.name()),
            LinkKind::Ipvlan { mode, .. } => fact.mode = Some(mode.name()),
            LinkKind::Vlan { id, .. } => fact.vlan_id = Some(*id),
            LinkKind::Tap(_) => (fact.mode, fact.mtus) = (Some("tap"), TAP_MTUS),
            LinkKind::Vrf { table } => fact.vrf_table = Some(*table),
            LinkKind::Dummy | LinkKind::Ifb | LinkKind::Other(_) => {}
        }
        facts.links.insert(self.at.clone(), fact);
    }
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
    /// The same, whose ends run programs of eBPF. This end is the primary one: the other's owner
    /// can't change them.
    Netkit {
        /// The other end.
        peer: LinkRef,
        /// Its hardware address; none in mode l3.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer_mac: Option<Mac>,
        /// At which layer it works.
        mode: NetkitMode,
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
        /// Its mode, which says who may talk to whom.
        mode: MacvlanMode,
        /// Length of the queue for broadcasts in packets; the kernel's 1000 where unset (Linux
        /// 5.11).
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
    /// A child that is one VLAN of its parent, whose hardware address it has (802.1Q).
    Vlan {
        /// The link below it.
        parent: LinkRef,
        /// Its number, 0 to 4094; the frames of VLAN 0 have a priority alone.
        id: u16,
    },
    /// Leads nowhere: an interface for addresses alone.
    Dummy,
    /// Frames that a program reads and writes.
    Tap(Tap),
    /// Gives back what is sent through it as if it had come in where it came from: a place to queue
    /// what comes in.
    Ifb,
    /// A routing table of its own for the links that are in it.
    Vrf {
        /// The table.
        table: u32,
    },
    /// A link that an earlier plugin or the kernel made; only in facts.
    Other(String),
}

impl LinkKind {
    /// The link below a child.
    pub fn parent(&self) -> Option<&LinkRef> {
        match self {
            Self::Macvlan { parent, .. }
            | Self::Ipvlan { parent, .. }
            | Self::Vlan { parent, .. } => Some(parent),
            Self::Veth { .. }
            | Self::Netkit { .. }
            | Self::Bridge { .. }
            | Self::Dummy
            | Self::Tap(_)
            | Self::Ifb
            | Self::Vrf { .. }
            | Self::Other(_) => None,
        }
    }

    /// The other end of a pair.
    pub fn peer(&self) -> Option<&LinkRef> {
        match self {
            Self::Veth { peer, .. } | Self::Netkit { peer, .. } => Some(peer),
            Self::Bridge { .. }
            | Self::Macvlan { .. }
            | Self::Ipvlan { .. }
            | Self::Vlan { .. }
            | Self::Dummy
            | Self::Tap(_)
            | Self::Ifb
            | Self::Vrf { .. }
            | Self::Other(_) => None,
        }
    }

    /// The kernel's word for it.
    pub fn name(&self) -> &str {
        match self {
            Self::Veth { .. } => "veth",
            Self::Netkit { .. } => "netkit",
            Self::Bridge { .. } => "bridge",
            Self::Macvlan { .. } => "macvlan",
            Self::Ipvlan { .. } => "ipvlan",
            Self::Vlan { .. } => "vlan",
            Self::Dummy => "dummy",
            Self::Tap(_) => "tun",
            Self::Ifb => "ifb",
            Self::Vrf { .. } => "vrf",
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

/// Modes of a netkit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetkitMode {
    /// Its ends have hardware addresses, and ask for those of others.
    L2,
    /// Its ends have none, and ask nobody.
    L3,
}

impl NetkitMode {
    /// The word in configurations and in `ip link`.
    pub fn name(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::L3 => "l3",
        }
    }
}
