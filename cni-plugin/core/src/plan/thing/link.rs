//! Links as steps name and create them.

pub use crate::plan::fact::link::{ETHERNET_MTUS, Hardware, LinkFact};
pub use crate::plan::fact::link_ref::LinkRef;
mod print;
mod tap;

pub use tap::{TAP_MTUS, Tap};

use super::state::{State, Verb, found, refuse_if};
use crate::name::{IfName, Mac, Ns};
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A link to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Namespace in which the link appears, and its final name.
    pub at: LinkRef,
    /// Hardware address; `None` means the kernel's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// MTU in bytes; `None` means the kernel's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// True to set the link up in the same request.
    pub up: bool,
    /// Bridge that takes the link as a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<IfName>,
    /// Kind of the link.
    pub kind: LinkKind,
}

impl Link {
    /// Returns a link known only by name, for deletion.
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

    /// Returns the links that are created and deleted with this one: itself, and its peer.
    pub fn ends(&self) -> impl Iterator<Item = &LinkRef> {
        std::iter::once(&self.at).chain(self.kind.peer())
    }

    /// Returns the same pair named by its end in the container, for deletion; `None` if this is not
    /// the host end of such a pair.
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

    /// Returns the host end of a pair that is named by its end in the container.
    pub fn host_end(&self) -> Option<&LinkRef> {
        self.kind
            .peer()
            .filter(|peer| (self.at.ns, peer.ns) == (Ns::Pod, Ns::Host))
    }

    /// True if both name the same link by namespace and name, or the same pair by its two ends.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_turned =
            || self.kind.peer() == Some(&other.at) && other.kind.peer() == Some(&self.at);
        self.at == other.at && self.host_end() == other.host_end() || is_turned()
    }

    /// Checks the kind-specific state of the link; the error names the difference.
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
            format!("links {} and {peer} are not a pair", self.at)
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
                format!("link {} is not a port of {master}", self.at)
            })?;
        }
        self.is_kind(fact, facts)?;
        refuse_if(self.up && !fact.up, || format!("link {} is down", self.at))?;
        // A shared bridge may have had an address before, and a later plugin may change the address
        // of the container's end.
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
            format!("link {} still exists", self.at)
        })
    }

    fn predict(&self, facts: &mut Facts) {
        // A child has its parent's MTU unless a different one is set.
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

/// Kind of a link, with the settings of that kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkKind {
    /// An end of a pair; the other end appears elsewhere in the same request.
    Veth {
        /// The other end.
        peer: LinkRef,
        /// Hardware address of the other end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer_mac: Option<Mac>,
    },
    /// An end of a pair that runs eBPF programs. This end is the primary one: its programs can't be
    /// changed from the other end.
    Netkit {
        /// The other end.
        peer: LinkRef,
        /// Hardware address of the other end; `None` in mode l3.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer_mac: Option<Mac>,
        /// Layer at which the pair works.
        mode: NetkitMode,
    },
    /// A bridge.
    Bridge {
        /// True if the bridge filters by VLAN.
        vlan_filtering: bool,
    },
    /// A child with a separate hardware address.
    Macvlan {
        /// The parent link.
        parent: LinkRef,
        /// Mode, which decides which children reach each other.
        mode: MacvlanMode,
        /// Length of the broadcast queue in packets; `None` means the kernel's 1000 (Linux 5.11).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bc_queue_len: Option<u32>,
    },
    /// A child with its parent's hardware address.
    Ipvlan {
        /// The parent link.
        parent: LinkRef,
        /// Layer at which the child switches.
        mode: IpvlanMode,
    },
    /// A child for one VLAN of its parent, with the parent's hardware address (802.1Q).
    Vlan {
        /// The parent link.
        parent: LinkRef,
        /// VLAN ID, 0 to 4094; frames of VLAN 0 carry only a priority.
        id: u16,
    },
    /// An interface for addresses alone, without a connection.
    Dummy,
    /// An interface for a program that reads and writes its frames.
    Tap(Tap),
    /// An intermediate device: packets redirected to it pass its queue, then continue on the
    /// receive path of their first link.
    Ifb,
    /// A separate routing table for its member links.
    Vrf {
        /// The table.
        table: u32,
    },
    /// A link of an earlier plugin or of the kernel; only in facts.
    Other(String),
}

impl LinkKind {
    /// Returns the parent of a child.
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

    /// Returns the other end of a pair.
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

    /// Returns the kernel's name of the kind.
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
    /// Returns the name in configurations and in `ip link`.
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
    /// Returns the name in configurations and in `ip link`.
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
    /// Ends with hardware addresses, which resolve their neighbours.
    L2,
    /// Ends without hardware addresses, which resolve no neighbours.
    L3,
}

impl NetkitMode {
    /// Returns the name in configurations and in `ip link`.
    pub fn name(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::L3 => "l3",
        }
    }
}
