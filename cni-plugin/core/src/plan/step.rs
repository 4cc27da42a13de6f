//! Steps of a plan. A step has a verb and a thing, which is an object or a setting of the kernel.
//!
//! `Add` creates a thing for one attachment. The thing must be new, and is deleted when the
//! attachment is rolled back. `Ensure` creates a missing thing for the node, and no attachment
//! rolls it back. A step that overwrites a value holds the old value, so its inverse needs no
//! facts.
//!
//! The record of an attachment contains its steps. It omits unset fields, because its size adds to
//! the time of every ADD.

use super::facts::{Facts, Need};
use super::thing::{Change, LinkAttr, LinkRef, Moved, Phase, Shaping, State, Thing, Verb};
use crate::name::IfName;
use crate::name::Ns;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};
use std::net::IpAddr;

/// A step of a plan: a change of the kernel's state, or an event to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Creates a thing for the attachment.
    Add(Thing),
    /// Creates a thing that the node shares, if missing.
    Ensure(Thing),
    /// Deletes a thing.
    Del(Thing),
    /// Overwrites an attribute of a link that outlives the attachment.
    Set {
        /// The link with the attribute.
        at: LinkRef,
        /// The new value.
        to: LinkAttr,
        /// The old value, which the inverse restores.
        from: LinkAttr,
    },
    /// Changes the rates of shaping that runs: links and queues are the same in both. A packet that
    /// waits keeps its place.
    Retune {
        /// The shaping with the new rates.
        to: Shaping,
        /// The shaping with the old rates, which the inverse restores.
        from: Shaping,
    },
    /// Waits for an event of a link.
    Wait(Event),
    /// Deletes all kernel objects of this kind that belong to this owner: network, container id and
    /// interface.
    Forget(OwnedKind, String),
    /// Deletes something that a reference plugin created.
    Legacy(Legacy),
}

/// An event of a link that a step waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The link is operationally up, which requires a carrier.
    Up(LinkRef),
    /// No address of the link is tentative any more (IPv6 duplicate address detection).
    Dad(LinkRef),
}

/// A kind of kernel object that is stored with its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnedKind {
    /// Masqueraded sources.
    Masquerades,
    /// Host ports.
    HostPorts,
    /// Forwarding rules for containers.
    Firewall,
    /// Guards against `AF_XDP` sockets.
    XskGuards,
}

impl OwnedKind {
    fn phase(self) -> Phase {
        match self {
            Self::XskGuards => Phase::Guard,
            Self::Masquerades | Self::HostPorts | Self::Firewall => Phase::Any,
        }
    }
}

/// A part of an attachment that a reference plugin created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Legacy {
    /// Masquerading rules of the attachment.
    Masquerade {
        /// The network's name.
        network: String,
        /// `CNI_CONTAINERID`.
        container_id: String,
        /// `CNI_IFNAME`.
        ifname: IfName,
    },
    /// The check of the container's source hardware address on a bridge port.
    MacCheck {
        /// `CNI_CONTAINERID`.
        container_id: String,
        /// `CNI_IFNAME`.
        ifname: IfName,
    },
    /// Host ports forwarded to the container.
    HostPorts {
        /// The network's name.
        network: String,
        /// `CNI_CONTAINERID`.
        container_id: String,
    },
    /// Forwarding rules for the container's addresses.
    Firewall {
        /// Addresses of the container.
        addrs: Vec<IpAddr>,
        /// The firewalld zone that may contain the addresses as sources.
        zone: String,
    },
    /// Policy routing rules for an attachment.
    Rules {
        /// The link of the attachment. A rule is selected by this input link, or by an address of
        /// the link.
        at: LinkRef,
        /// Addresses of the attachment from its result. Their rules are deleted even if the link is
        /// gone.
        addrs: Vec<IpAddr>,
        /// Routing table of the rules; `None` for any table.
        table: Option<u32>,
    },
    /// Attributes that the plugin `tuning` changed on a link that outlives the attachment. The step
    /// restores the values in a file, then deletes the file.
    Tuning {
        /// The link to restore.
        at: LinkRef,
        /// Path of the file with the old values.
        file: String,
    },
}

impl Step {
    /// Returns a step that creates a thing for the attachment.
    pub fn add(thing: impl Into<Thing>) -> Self {
        Self::Add(thing.into())
    }

    /// Returns a step that creates a thing for the node, if missing.
    pub fn ensure(thing: impl Into<Thing>) -> Self {
        Self::Ensure(thing.into())
    }

    /// Returns a step that deletes a thing.
    pub fn del(thing: impl Into<Thing>) -> Self {
        Self::Del(thing.into())
    }

    /// Returns the attribute that the step sets, with its link.
    pub fn attr(&self) -> Option<(&LinkRef, &LinkAttr)> {
        match self {
            Self::Add(Thing::Attr(attr)) | Self::Ensure(Thing::Attr(attr)) => {
                Some((&attr.at, &attr.to))
            }
            Self::Set { at, to, .. } => Some((at, to)),
            Self::Add(_)
            | Self::Ensure(_)
            | Self::Del(_)
            | Self::Retune { .. }
            | Self::Wait(_)
            | Self::Forget(..)
            | Self::Legacy(_) => None,
        }
    }

    /// Returns the phase of an undo in which the step runs; [`Phase::Any`] if the step deletes no
    /// thing.
    pub fn deletion_phase(&self) -> Phase {
        match self {
            Self::Del(thing) => thing.state().phase(),
            Self::Forget(kind, _) => kind.phase(),
            Self::Add(_)
            | Self::Ensure(_)
            | Self::Set { .. }
            | Self::Retune { .. }
            | Self::Wait(_)
            | Self::Legacy(_) => Phase::Any,
        }
    }

    /// True if the reference plugins make the same change in the same way. CHECK can then verify
    /// the step for an attachment without a record.
    pub fn is_as_reference(&self) -> bool {
        match self {
            Self::Add(thing) => thing.state().is_as_reference(Change::Add),
            Self::Ensure(thing) => thing.state().is_as_reference(Change::Ensure),
            Self::Del(thing) => thing.state().is_as_reference(Change::Del),
            Self::Set { .. } | Self::Wait(Event::Up(_)) => true,
            Self::Retune { .. }
            | Self::Wait(Event::Dad(_))
            | Self::Forget(..)
            | Self::Legacy(_) => false,
        }
    }

    /// Returns the namespace that the step acts in.
    pub fn ns(&self) -> Ns {
        match self {
            Self::Add(thing) | Self::Ensure(thing) | Self::Del(thing) => thing.state().ns(),
            Self::Set { at, .. }
            | Self::Wait(Event::Up(at) | Event::Dad(at))
            | Self::Legacy(Legacy::Tuning { at, .. } | Legacy::Rules { at, .. }) => at.ns,
            Self::Retune { to, .. } => to.ns(),
            Self::Forget(..) | Self::Legacy(_) => Ns::Host,
        }
    }

    /// Returns the facts needed to check the step.
    pub fn needs(&self) -> Vec<Need> {
        match self {
            Self::Add(thing) | Self::Ensure(thing) | Self::Del(thing) => thing.state().needs(),
            Self::Set { at, .. } | Self::Wait(Event::Up(at) | Event::Dad(at)) => {
                vec![Need::Link(at.clone())]
            }
            Self::Retune { to, .. } => to.needs(),
            Self::Forget(..) | Self::Legacy(_) => Vec::new(),
        }
    }

    /// Checks in `facts` that the step's effect is present; the error names the difference.
    pub fn holds(&self, facts: &Facts) -> Result<(), String> {
        match self {
            Self::Add(thing) | Self::Ensure(thing) => thing.state().holds(facts),
            Self::Del(thing) => thing.state().is_gone(facts),
            Self::Set { at, to, .. } => to.holds(at, facts),
            Self::Retune { to, .. } => to.holds(facts),
            Self::Wait(Event::Up(at)) => match facts.link(at) {
                None => Err(format!("link {at} does not exist")),
                Some(fact) if !fact.running => Err(format!("link {at} is not operationally up")),
                Some(_) => Ok(()),
            },
            Self::Wait(Event::Dad(_)) | Self::Forget(..) | Self::Legacy(_) => Ok(()),
        }
    }

    /// Returns the link that the step moves between host and container; `None` for other steps.
    pub fn as_moved_mut(&mut self) -> Option<&mut Moved> {
        if let Self::Add(Thing::Moved(moved)) | Self::Del(Thing::Moved(moved)) = self {
            Some(moved)
        } else {
            None
        }
    }

    /// Updates `facts` with the expected effect of the step, as far as a later plugin of the same
    /// plan may need that effect.
    pub fn predict(&self, facts: &mut Facts) {
        match self {
            Self::Ensure(Thing::Link(link)) if facts.links.contains_key(&link.at) => {}
            Self::Add(thing) | Self::Ensure(thing) => thing.state().predict(facts),
            Self::Set { at, to, .. } => to.predict(at, facts),
            Self::Del(_)
            | Self::Retune { .. }
            | Self::Wait(_)
            | Self::Forget(..)
            | Self::Legacy(_) => {}
        }
    }
}

impl Facts {
    /// Returns the facts that are expected after `steps`, as far as a later plugin of the same plan
    /// may need them.
    #[must_use]
    pub fn after(mut self, steps: &[Step]) -> Self {
        for step in steps {
            step.predict(&mut self);
        }
        self
    }
}

/// Writes the namespace of the step and the command that an administrator would type there. The
/// container's namespace is written `pod`. A dry run, golden files and error messages all contain
/// this text.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<5}", self.ns().to_string())?;
        match self {
            Self::Add(thing) | Self::Ensure(thing) => thing.state().print(Verb::Add, f),
            Self::Del(thing) => thing.state().print(Verb::Del, f),
            Self::Set { at, to, .. } => to.print(at, f),
            Self::Retune { to, .. } => to.print(Verb::Add, f),
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
        OwnedKind::XskGuards => write!(f, "# remove the AF_XDP guard of {owner:?}"),
    }
}

fn print_legacy(legacy: &Legacy, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# ")?;
    let theirs = "delete the reference plugin's";
    match legacy {
        Legacy::Masquerade {
            container_id,
            ifname,
            ..
        } => write!(f, "{theirs} masquerade rules of {container_id} {ifname}"),
        Legacy::MacCheck {
            container_id,
            ifname,
        } => {
            write!(f, "{theirs} MAC spoof check of {container_id} {ifname}")
        }
        Legacy::HostPorts { container_id, .. } => {
            write!(f, "{theirs} host ports of {container_id}")
        }
        Legacy::Firewall { addrs, .. } => {
            let addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
            write!(f, "{theirs} forwarding rules for {}", addrs.join(" and "))
        }
        Legacy::Rules { at, addrs, table } => {
            let mut about: Vec<String> = addrs.iter().map(ToString::to_string).collect();
            about.push(at.name.to_string());
            let table = table.map_or(String::new(), |table| format!(" to table {table}"));
            write!(
                f,
                "delete every rule{table} for {} and its addresses",
                about.join(", ")
            )
        }
        Legacy::Tuning { at, file } => {
            write!(f, "restore the attributes of {} from {file}", at.name)
        }
    }
}

/// Returns the text of the plan. Each step begins on a new line.
pub fn render(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        // Writing to a `String` can't fail.
        let _ = writeln!(text, "{step}");
    }
    text
}
