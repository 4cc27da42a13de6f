//! An attribute of a link.

use super::state::{Change, State, Verb, found, refuse_if};
use crate::name::{Mac, Ns};
use crate::plan::fact::link::LinkFact;
use crate::plan::fact::link_ref::LinkRef;
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An attribute of a link, which is deleted with the link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// The link that has the attribute.
    pub at: LinkRef,
    /// The attribute with its new value.
    pub to: LinkAttr,
}

/// An attribute with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkAttr {
    /// Administratively up or down.
    Up(bool),
    /// Hardware address.
    Mac(Mac),
    /// MTU in bytes.
    Mtu(u32),
    /// Receives all packets (promiscuous mode).
    Promisc(bool),
    /// Receives all multicast.
    AllMulti(bool),
    /// Length of the transmit queue in packets.
    TxQueueLen(u32),
    /// Largest packet in bytes that the stack passes to the link (GSO).
    GsoMaxSize(u32),
    /// The link's current hardware address. Setting it again makes the kernel announce the link's
    /// addresses, if `arp_notify` and `ndisc_notify` are set (`NETDEV_CHANGEADDR`).
    Announce(Mac),
    /// Alias of the link, at most 254 bytes, which names the link's owner. The kernel silently
    /// ignores an alias in the request that creates the link (v6.12 net/core/rtnetlink.c,
    /// `rtnl_create_link()`).
    Alias(String),
    /// Bridge port: frames may leave through the port they arrived on.
    Hairpin(bool),
    /// Bridge port: no frames pass between this port and other isolated ports.
    Isolated(bool),
    /// The sysctl `net.ipv4.conf.<link>.arp_notify`: announces the link's addresses when the link
    /// comes up. It is set by netlink in the same send as the address, without opening the
    /// namespace's `/proc/sys`.
    ArpNotify(bool),
}

impl LinkAttr {
    /// Writes the command that sets the attribute.
    pub fn print(&self, at: &LinkRef, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, on_off) = (&at.name, |on: &bool| if *on { "on" } else { "off" });
        match self {
            Self::Up(true) => write!(f, "ip link set {name} up"),
            Self::Up(false) => write!(f, "ip link set {name} down"),
            Self::Mac(mac) | Self::Announce(mac) => write!(f, "ip link set {name} address {mac}"),
            Self::Mtu(mtu) => write!(f, "ip link set {name} mtu {mtu}"),
            Self::Promisc(on) => write!(f, "ip link set {name} promisc {}", on_off(on)),
            Self::AllMulti(on) => write!(f, "ip link set {name} allmulticast {}", on_off(on)),
            Self::TxQueueLen(len) => write!(f, "ip link set {name} txqueuelen {len}"),
            Self::GsoMaxSize(size) => write!(f, "ip link set {name} gso_max_size {size}"),
            Self::Alias(text) => write!(f, "ip link set {name} alias {text:?}"),
            Self::Hairpin(on) => write!(f, "bridge link set dev {name} hairpin {}", on_off(on)),
            Self::ArpNotify(on) => write!(
                f,
                "sysctl -w net/ipv4/conf/{name}/arp_notify={}",
                u8::from(*on)
            ),
            Self::Isolated(on) => write!(f, "bridge link set dev {name} isolated {}", on_off(on)),
        }
    }

    /// Checks that the link at `at` has the attribute with this value.
    pub fn holds(&self, at: &LinkRef, facts: &Facts) -> Result<(), String> {
        let fact = found(at, facts)?;
        refuse_if(!fact.has(self), || {
            format!("link {at} differs from {self:?}")
        })
    }

    /// Updates the properties of the link at `at` with this value.
    pub fn predict(&self, at: &LinkRef, facts: &mut Facts) {
        if let Some(fact) = facts.links.get_mut(at) {
            fact.set(self);
        }
    }
}

impl State for Attr {
    fn ns(&self) -> Ns {
        self.at.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match verb {
            Verb::Add => self.to.print(&self.at, f),
            Verb::Del => write!(f, "# keep {} as it is", self.at.name),
        }
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Link(self.at.clone())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        self.to.holds(&self.at, facts)
    }

    fn goes_with(&self) -> Vec<&LinkRef> {
        vec![&self.at]
    }

    fn predict(&self, facts: &mut Facts) {
        self.to.predict(&self.at, facts);
    }

    fn is_setting(&self) -> bool {
        true
    }

    fn is_as_reference(&self, change: Change) -> bool {
        change != Change::Del
    }
}

impl LinkFact {
    /// True if the link has the attribute with this value. Always true for attributes that CHECK
    /// does not compare.
    pub fn has(&self, attr: &LinkAttr) -> bool {
        match attr {
            LinkAttr::Up(up) => self.up == *up,
            LinkAttr::Mac(mac) => self.mac == Some(*mac),
            LinkAttr::Mtu(mtu) => self.mtu == *mtu,
            LinkAttr::Promisc(on) => self.promisc == *on,
            LinkAttr::AllMulti(on) => self.all_multi == *on,
            LinkAttr::TxQueueLen(len) => self.tx_queue_len == *len,
            LinkAttr::Hairpin(on) => self.hairpin == *on,
            LinkAttr::Isolated(on) => self.isolated == *on,
            // Not checked: a later change is deliberate.
            LinkAttr::GsoMaxSize(_)
            | LinkAttr::ArpNotify(_)
            | LinkAttr::Alias(_)
            | LinkAttr::Announce(_) => true,
        }
    }

    fn set(&mut self, attr: &LinkAttr) {
        match attr {
            LinkAttr::Up(up) => self.up = *up,
            LinkAttr::Mac(mac) => self.mac = Some(*mac),
            LinkAttr::Mtu(mtu) => self.mtu = *mtu,
            LinkAttr::Promisc(on) => self.promisc = *on,
            LinkAttr::AllMulti(on) => self.all_multi = *on,
            LinkAttr::TxQueueLen(len) => self.tx_queue_len = *len,
            LinkAttr::Hairpin(on) => self.hairpin = *on,
            LinkAttr::Isolated(on) => self.isolated = *on,
            LinkAttr::Alias(text) => self.alias.clone_from(text),
            LinkAttr::GsoMaxSize(size) => self.gso_max_size = *size,
            LinkAttr::ArpNotify(_) | LinkAttr::Announce(_) => {}
        }
    }
}
