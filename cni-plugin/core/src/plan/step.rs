//! The steps of a plan: a verb and a thing.
//!
//! `Add` is of one attachment, must be new and is undone with it. `Ensure` is of the node: it is
//! made if missing and never undone by one attachment. A step that overwrites carries the old
//! value, so that its inverse is pure.
//!
//! A record leaves out what is unset: each word of it is a part of every ADD's time.

use super::facts::{Facts, Need};
use super::recorded::Recorded;
use super::thing::{LinkAttr, LinkRef, Moved, Thing, Verb};
use crate::name::IfName;
use crate::name::Ns;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};
use std::net::IpAddr;

/// One change, or one event to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Recorded")]
pub enum Step {
    /// Makes what is the attachment's own.
    Add(Thing),
    /// Makes what the node shares, if it is missing.
    Ensure(Thing),
    /// Takes away.
    Del(Thing),
    /// Overwrites an attribute of a link that outlives the attachment.
    Set {
        /// The link.
        at: LinkRef,
        /// The new value.
        to: LinkAttr,
        /// The value to go back to.
        from: LinkAttr,
    },
    /// Waits for an event.
    Wait(Event),
    /// Takes away what the kernel says is of one owner: network, container id and interface.
    Forget(OwnedKind, String),
    /// Takes away what a reference plugin made.
    Legacy(Legacy),
}

/// An event of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A link with a carrier is operationally up.
    Up(LinkRef),
    /// No address of the link is tentative (IPv6 duplicate address detection).
    Dad(LinkRef),
}

/// A kind of thing of which the kernel keeps the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnedKind {
    /// Masqueraded sources.
    Masquerades,
    /// Ports of the host.
    HostPorts,
    /// Forwarding for containers.
    Firewall,
    /// Holds on `AF_XDP` sockets.
    XskGuards,
}

/// Something of an attachment that a reference plugin made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Legacy {
    /// Masquerading of the attachment.
    Masquerade {
        /// The network's name.
        network: String,
        /// `CNI_CONTAINERID`.
        container_id: String,
        /// `CNI_IFNAME`.
        ifname: IfName,
    },
    /// The hardware address check of the attachment.
    MacCheck {
        /// `CNI_CONTAINERID`.
        container_id: String,
        /// `CNI_IFNAME`.
        ifname: IfName,
    },
    /// Ports of the host that lead to the container.
    HostPorts {
        /// The network's name.
        network: String,
        /// `CNI_CONTAINERID`.
        container_id: String,
    },
    /// Forwarding for these addresses.
    Firewall {
        /// Of the container.
        addrs: Vec<IpAddr>,
        /// The zone of firewalld that they may be in.
        zone: String,
    },
    /// Rules of policy routing about an attachment.
    Rules {
        /// The link that has its addresses, or by which its packets come in.
        at: LinkRef,
        /// Addresses that are known.
        addrs: Vec<IpAddr>,
        /// The table that the rules are for; any where unset.
        table: Option<u32>,
    },
    /// Attributes of a link that is still there, which get the values back that a file notes, and
    /// the file.
    Tuning {
        /// The link.
        at: LinkRef,
        /// The file.
        file: String,
    },
}

impl Step {
    /// Makes something of the attachment's own.
    pub fn add(thing: impl Into<Thing>) -> Self {
        Self::Add(thing.into())
    }

    /// Makes something that the node shares.
    pub fn ensure(thing: impl Into<Thing>) -> Self {
        Self::Ensure(thing.into())
    }

    /// Takes something away.
    pub fn del(thing: impl Into<Thing>) -> Self {
        Self::Del(thing.into())
    }

    /// The attribute that the step gives a link, and the link.
    pub fn attr(&self) -> Option<(&LinkRef, &LinkAttr)> {
        match self {
            Self::Add(Thing::Attr(attr)) | Self::Ensure(Thing::Attr(attr)) => {
                Some((&attr.at, &attr.to))
            }
            Self::Set { at, to, .. } => Some((at, to)),
            Self::Add(_)
            | Self::Ensure(_)
            | Self::Del(_)
            | Self::Wait(_)
            | Self::Forget(..)
            | Self::Legacy(_) => None,
        }
    }

    /// The namespace that the step acts in.
    pub fn ns(&self) -> Ns {
        match self {
            Self::Add(thing) | Self::Ensure(thing) | Self::Del(thing) => thing.state().ns(),
            Self::Set { at, .. }
            | Self::Wait(Event::Up(at) | Event::Dad(at))
            | Self::Legacy(Legacy::Tuning { at, .. } | Legacy::Rules { at, .. }) => at.ns,
            Self::Forget(..) | Self::Legacy(_) => Ns::Host,
        }
    }

    /// The facts needed to judge the step.
    pub fn needs(&self) -> Vec<Need> {
        match self {
            Self::Add(thing) | Self::Ensure(thing) | Self::Del(thing) => thing.state().needs(),
            Self::Set { at, .. } | Self::Wait(Event::Up(at) | Event::Dad(at)) => {
                vec![Need::Link(at.clone())]
            }
            Self::Forget(..) | Self::Legacy(_) => Vec::new(),
        }
    }

    /// `Ok` where the step's effect is there, judged by the facts alone; otherwise what differs.
    pub fn holds(&self, facts: &Facts) -> Result<(), String> {
        match self {
            Self::Add(thing) | Self::Ensure(thing) => thing.state().holds(facts),
            Self::Del(thing) => thing.state().is_gone(facts),
            Self::Set { at, to, .. } => to.holds(at, facts),
            Self::Wait(Event::Up(at)) => match facts.link(at) {
                None => Err(format!("link {at} does not exist")),
                Some(fact) if !fact.running => Err(format!("link {at} is not operationally up")),
                Some(_) => Ok(()),
            },
            Self::Wait(Event::Dad(_)) | Self::Forget(..) | Self::Legacy(_) => Ok(()),
        }
    }

    /// The moved link that the step is about.
    pub fn as_moved_mut(&mut self) -> Option<&mut Moved> {
        if let Self::Add(Thing::Moved(moved)) | Self::Del(Thing::Moved(moved)) = self {
            Some(moved)
        } else {
            None
        }
    }

    /// Notes in `facts` what will be there, as far as a later plugin of the same plan may ask.
    pub fn predict(&self, facts: &mut Facts) {
        match self {
            Self::Ensure(Thing::Link(link)) if facts.links.contains_key(&link.at) => {}
            Self::Add(thing) | Self::Ensure(thing) => thing.state().predict(facts),
            Self::Set { at, to, .. } => to.predict(at, facts),
            Self::Del(_) | Self::Wait(_) | Self::Forget(..) | Self::Legacy(_) => {}
        }
    }
}

/// The command that an administrator would type, behind its namespace. The container's is written
/// `pod`. The same text is the dry run, the golden file and the error's subject.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<5}", self.ns().to_string())?;
        match self {
            Self::Add(thing) | Self::Ensure(thing) => thing.state().print(Verb::Add, f),
            Self::Del(thing) => thing.state().print(Verb::Del, f),
            Self::Set { at, to, .. } => to.print(at, f),
            Self::Wait(Event::Up(at)) => write!(f, "# wait until {} is operationally up", at.name),
            Self::Wait(Event::Dad(at)) => {
                write!(f, "# wait until no address of {} is tentative", at.name)
            }
            Self::Forget(kind, owner) => print_forget(*kind, owner, f),
            Self::Legacy(legacy) => print_legacy(legacy, f),
        }
    }
}

fn print_forget(kind: OwnedKind, owner: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match kind {
        OwnedKind::Masquerades => write!(
            f,
            "# nft delete every element of inet braid with comment {owner:?}"
        ),
        OwnedKind::HostPorts => write!(
            f,
            "# delete every host port of inet braid and of /sys/fs/bpf/braid of {owner:?}"
        ),
        OwnedKind::Firewall => write!(
            f,
            "# nft delete every forwarded address of inet braid with comment {owner:?}"
        ),
        OwnedKind::XskGuards => write!(f, "# let AF_XDP sockets of {owner:?} send again"),
    }
}

fn print_legacy(legacy: &Legacy, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# ")?;
    let made = "delete what the reference plugin made to";
    match legacy {
        Legacy::Masquerade {
            container_id,
            ifname,
            ..
        } => write!(f, "{made} masquerade {container_id} {ifname}"),
        Legacy::MacCheck {
            container_id,
            ifname,
        } => {
            write!(
                f,
                "{made} check hardware addresses of {container_id} {ifname}"
            )
        }
        Legacy::HostPorts { container_id, .. } => {
            write!(f, "{made} lead host ports to {container_id}")
        }
        Legacy::Firewall { addrs, .. } => {
            let addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
            write!(f, "{made} forward {}", addrs.join(" and "))
        }
        Legacy::Rules { at, addrs, table } => {
            let mut about: Vec<String> = addrs.iter().map(ToString::to_string).collect();
            about.push(at.name.to_string());
            let table = table.map_or(String::new(), |table| format!(" for table {table}"));
            write!(
                f,
                "delete every rule{table} about {} and its addresses",
                about.join(", ")
            )
        }
        Legacy::Tuning { at, file } => write!(f, "give {} back what {file} notes", at.name),
    }
}

/// The whole plan, one line a step.
pub fn render(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{step}");
    }
    text
}
