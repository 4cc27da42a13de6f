//! Kinds of links: all that differs between the kinds, except their encoding.

mod tap;
mod vxlan;

pub use tap::{TAP_MTUS, Tap};
pub use vxlan::{Vxlan, learning_word, remote_word};

use super::{ETHERNET_MTUS, LinkFact, LinkRef};
use crate::name::{Mac, Ns};
use crate::plan::facts::Facts;
use crate::plan::thing::state::{found, refuse_if};
use serde::{Deserialize, Serialize};

/// Kind of a link, with the settings of that kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkKind {
    /// One end of a veth pair. The same request also creates the other end, possibly in another
    /// namespace.
    Veth {
        /// The other end of the pair.
        peer: LinkRef,
        /// Hardware address of the other end; `None` means the kernel's choice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer_mac: Option<Mac>,
    },
    /// One end of a netkit pair, which runs eBPF programs. This end is the primary one: its
    /// programs can't be changed from the other end.
    Netkit {
        /// The other end of the pair.
        peer: LinkRef,
        /// Hardware address of the other end; `None` in mode l3.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer_mac: Option<Mac>,
        /// Mode of the pair: with hardware addresses (l2) or without (l3).
        mode: NetkitMode,
    },
    /// A bridge.
    Bridge {
        /// True if the bridge filters by VLAN.
        vlan_filtering: bool,
    },
    /// A macvlan: a child of another link, with a separate hardware address.
    Macvlan {
        /// The parent link.
        parent: LinkRef,
        /// Mode, which decides which children reach each other.
        mode: MacvlanMode,
        /// Length of the broadcast queue in packets; `None` means the kernel's 1000 (Linux 5.11).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bc_queue_len: Option<u32>,
    },
    /// An ipvlan: a child of another link, with the parent's hardware address.
    Ipvlan {
        /// The parent link.
        parent: LinkRef,
        /// Layer at which the ipvlan switches packets.
        mode: IpvlanMode,
    },
    /// A VXLAN: an end of a layer 2 network that UDP carries between hosts.
    Vxlan(Vxlan),
    /// A child for one VLAN of its parent (802.1Q), with the parent's hardware address.
    Vlan {
        /// The parent link.
        parent: LinkRef,
        /// VLAN ID, 0 to 4094; frames of VLAN 0 carry only a priority.
        id: u16,
    },
    /// A dummy link: it has addresses, but no connection.
    Dummy,
    /// A tap: a program reads and writes its frames.
    Tap(Tap),
    /// An intermediate functional block (ifb). Packets redirected to the ifb pass its qdisc, then
    /// continue on the receive path of the link that received them.
    Ifb,
    /// A VRF: a separate routing table for its member links.
    Vrf {
        /// Routing table of the VRF.
        table: u32,
    },
    /// A link of any other kind, or of unknown kind. braid deletes such a link, but never creates
    /// one.
    Other(String),
}

impl LinkKind {
    /// Returns the parent of a macvlan, ipvlan or VLAN, or the underlay of a VXLAN; `None` for
    /// other kinds.
    pub fn parent(&self) -> Option<&LinkRef> {
        match self {
            Self::Macvlan { parent, .. }
            | Self::Ipvlan { parent, .. }
            | Self::Vlan { parent, .. } => Some(parent),
            Self::Vxlan(vxlan) => vxlan.dev.as_ref(),
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

    /// Returns the namespace in which the link must be requested (`link-netns`). The link stays
    /// connected to this namespace. It is the parent's namespace, or the host's for a VXLAN. `None`
    /// means the link's own namespace.
    pub fn made_in(&self) -> Option<Ns> {
        // The UDP socket of a VXLAN stays in the host's namespace, also without an underlay link.
        let is_vxlan = matches!(self, Self::Vxlan(_));
        let parent = self.parent().map(|parent| parent.ns);
        parent.or(is_vxlan.then_some(Ns::Host))
    }

    /// Returns the other end of a pair; `None` for other kinds.
    pub fn peer(&self) -> Option<&LinkRef> {
        match self {
            Self::Veth { peer, .. } | Self::Netkit { peer, .. } => Some(peer),
            Self::Bridge { .. }
            | Self::Macvlan { .. }
            | Self::Ipvlan { .. }
            | Self::Vlan { .. }
            | Self::Vxlan(_)
            | Self::Dummy
            | Self::Tap(_)
            | Self::Ifb
            | Self::Vrf { .. }
            | Self::Other(_) => None,
        }
    }

    /// True if a hardware address can be set. An ipvlan always has its parent's address.
    pub fn takes_mac(&self) -> bool {
        !matches!(self, Self::Ipvlan { .. })
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
            Self::Vxlan(_) => "vxlan",
            Self::Dummy => "dummy",
            Self::Tap(_) => "tun",
            Self::Ifb => "ifb",
            Self::Vrf { .. } => "vrf",
            Self::Other(kind) => kind,
        }
    }

    /// Returns the words of `ip link add` that precede the name of a link in `ns` and name its
    /// parent.
    pub(super) fn origin(&self, ns: Ns) -> String {
        if let (Self::Vxlan(_), Some(from)) = (self, self.made_in()) {
            return format!(" link-netns {from}");
        }
        match self.parent() {
            Some(parent) if parent.ns == ns => format!(" link {}", parent.name),
            Some(parent) => format!(" link {} # of {}\n     ", parent.name, parent.ns),
            None => String::new(),
        }
    }

    /// Returns the settings of the kind as words of `ip link add`, except for the other end of a
    /// pair.
    pub(super) fn words(&self) -> Vec<String> {
        match self {
            Self::Veth { .. } => vec!["peer".to_owned()],
            Self::Netkit { mode, .. } => {
                vec![format!("mode {} forward peer forward", mode.name())]
            }
            Self::Bridge { vlan_filtering } => {
                let word = vlan_filtering.then(|| "vlan_filtering 1".to_owned());
                word.into_iter().collect()
            }
            Self::Macvlan {
                mode, bc_queue_len, ..
            } => {
                let len = bc_queue_len.map(|len| format!("bcqueuelen {len}"));
                let mode = format!("mode {}", mode.name());
                [mode].into_iter().chain(len).collect()
            }
            Self::Ipvlan { mode, .. } => vec![format!("mode {}", mode.name())],
            Self::Vlan { id, .. } => vec![format!("id {id}")],
            Self::Vxlan(vxlan) => vxlan.words(),
            Self::Vrf { table } => vec![format!("table {table}")],
            Self::Tap(tap) => tap.options(),
            Self::Dummy | Self::Ifb | Self::Other(_) => Vec::new(),
        }
    }

    /// Returns the settings that CHECK compares with [`LinkFact::settings`].
    fn settings(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Vlan { id, .. } => vec![("id", id.to_string())],
            Self::Vxlan(vxlan) => vxlan.settings(),
            Self::Veth { .. }
            | Self::Netkit { .. }
            | Self::Bridge { .. }
            | Self::Macvlan { .. }
            | Self::Ipvlan { .. }
            | Self::Dummy
            | Self::Tap(_)
            | Self::Ifb
            | Self::Vrf { .. }
            | Self::Other(_) => Vec::new(),
        }
    }

    /// Checks the properties that only this kind of link has; the error names the difference.
    pub(super) fn holds(&self, at: &LinkRef, fact: &LinkFact, facts: &Facts) -> Result<(), String> {
        match self {
            Self::Veth { peer, .. } => self.is_paired(at, fact, peer, facts),
            Self::Netkit { peer, mode, .. } => {
                self.is_paired(at, fact, peer, facts)?;
                has_mode(at, fact, mode.name())
            }
            Self::Macvlan { mode, .. } => has_mode(at, fact, mode.name()),
            Self::Ipvlan { mode, .. } => has_mode(at, fact, mode.name()),
            Self::Tap(_) => has_mode(at, fact, "tap"),
            Self::Vrf { table } => {
                let found = fact.vrf_table;
                refuse_if(found.is_some_and(|found| found != *table), || {
                    format!("VRF {at} has no table {table}")
                })
            }
            Self::Vlan { .. }
            | Self::Vxlan(_)
            | Self::Bridge { .. }
            | Self::Dummy
            | Self::Ifb
            | Self::Other(_) => has_settings(at, fact, &self.settings()),
        }
    }

    fn is_paired(
        &self,
        at: &LinkRef,
        fact: &LinkFact,
        peer: &LinkRef,
        facts: &Facts,
    ) -> Result<(), String> {
        let (kind, other) = (self.name(), found(peer, facts)?);
        refuse_if(other.kind != kind, || {
            format!("link {peer} is of kind {:?}, not {kind}", other.kind)
        })?;
        let paired = fact.parent == Some(other.index) && other.parent == Some(fact.index);
        refuse_if(!paired, || format!("links {at} and {peer} are no pair"))
    }

    /// Updates the properties of a new link of this kind, and adds the other end of a pair to
    /// `facts`.
    pub(super) fn predict(
        &self,
        fact: &mut LinkFact,
        parent: Option<&LinkFact>,
        facts: &mut Facts,
    ) {
        fact.settings = self.settings();
        let most = |parent: &LinkFact| *ETHERNET_MTUS.start()..=parent.mtu;
        match self {
            Self::Veth { peer, peer_mac } => {
                let other = LinkFact::planned("veth", *peer_mac, fact.mtu, false);
                facts.links.insert(peer.clone(), other);
            }
            Self::Netkit {
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
            Self::Bridge { vlan_filtering } => fact.vlan_filtering = *vlan_filtering,
            Self::Macvlan { mode, .. } => {
                fact.mode = Some(mode.name());
                fact.mtus = parent.map_or(ETHERNET_MTUS, most);
            }
            Self::Ipvlan { mode, .. } => fact.mode = Some(mode.name()),
            Self::Vxlan(vxlan) => {
                let most = parent.map_or(*ETHERNET_MTUS.end(), |parent| vxlan.most(parent.mtu));
                fact.mtus = *ETHERNET_MTUS.start()..=most;
            }
            Self::Vlan { .. } => fact.mtus = parent.map_or(ETHERNET_MTUS, most),
            Self::Tap(_) => (fact.mode, fact.mtus) = (Some("tap"), TAP_MTUS),
            Self::Vrf { table } => fact.vrf_table = Some(*table),
            Self::Dummy | Self::Ifb | Self::Other(_) => {}
        }
    }
}

fn has_mode(at: &LinkRef, fact: &LinkFact, mode: &str) -> Result<(), String> {
    let found = fact.mode.unwrap_or("unknown");
    refuse_if(fact.mode != Some(mode), || {
        format!("link {at} has mode {found:?}, not {mode}")
    })
}

fn has_settings(
    at: &LinkRef,
    fact: &LinkFact,
    wanted: &[(&'static str, String)],
) -> Result<(), String> {
    for (word, value) in wanted {
        let found = fact.settings.iter().find(|(it, _)| it == word);
        let found = found.map_or("none", |(_, value)| value);
        refuse_if(found != value, || {
            format!("link {at} has {word} {found}, not {value}")
        })?;
    }
    Ok(())
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
    /// The ends have hardware addresses and resolve their neighbours.
    L2,
    /// The ends have no hardware addresses and resolve no neighbours.
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
