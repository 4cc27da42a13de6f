//! Links that steps create or refer to.

pub use crate::plan::fact::link::{ETHERNET_MTUS, Hardware, LinkFact};
pub use crate::plan::fact::link_ref::LinkRef;
mod kind;
mod print;

pub use kind::*;

use super::state::{Change, Phase, State, Verb, found, refuse_if};
use crate::name::{IfName, Mac, Ns};
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A link to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Namespace of the new link, and its final name.
    pub at: LinkRef,
    /// Hardware address; `None` means the kernel's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// MTU in bytes; `None` means the kernel's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// True to set the link up in the request that creates the link.
    pub up: bool,
    /// Bridge that gets the link as a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<IfName>,
    /// Kind of the link, with the settings of that kind.
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

    /// Returns the links that are created and deleted together: this link and the other end of its
    /// pair.
    pub fn ends(&self) -> impl Iterator<Item = &LinkRef> {
        std::iter::once(&self.at).chain(self.kind.peer())
    }

    /// Returns a copy of a pair with the ends exchanged, for deletion: `at` is the end in the
    /// container. `None` unless `self` is a pair with `at` on the host and the other end in the
    /// container.
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

    /// Returns the host end of the pair, if `at` is the end in the container; `None` otherwise.
    pub fn host_end(&self) -> Option<&LinkRef> {
        self.kind
            .peer()
            .filter(|peer| (self.at.ns, peer.ns) == (Ns::Pod, Ns::Host))
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
        self.kind.holds(&self.at, fact, facts)?;
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
        let parent = parent.cloned();
        self.kind.predict(&mut fact, parent.as_ref(), facts);
        facts.links.insert(self.at.clone(), fact);
    }

    fn makes(&self) -> Vec<&LinkRef> {
        self.ends().collect()
    }

    fn phase(&self) -> Phase {
        Phase::Link
    }

    /// True if both have the same namespace and name, or are the two ends of the same pair.
    fn is_same(&self, other: &Self) -> bool {
        let is_turned =
            || self.kind.peer() == Some(&other.at) && other.kind.peer() == Some(&self.at);
        self.at == other.at && self.host_end() == other.host_end() || is_turned()
    }

    fn is_as_reference(&self, change: Change) -> bool {
        change != Change::Del
    }
}
