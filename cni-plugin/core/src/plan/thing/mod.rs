//! Things that plans create, one file per kind: its command, the facts needed to check it, the
//! check, the links that it is deleted with, and its owner.
//!
//! A new kind is a file here, a line in [`things`], and a file of its effect on the kernel.

pub mod addr;
pub mod advertised;
pub mod attr;
pub mod condition;
pub mod fdb;
pub mod firewall;
pub mod host_ports;
pub mod link;
pub mod mac_check;
pub mod masquerade;
pub mod moved;
pub mod neigh;
pub mod no_route;
pub mod note;
pub mod packet_guard;
pub mod redirect;
pub mod route;
pub mod rule;
pub mod shaping;
pub mod sysctl;
pub mod vlan;
pub mod vrf_member;
pub mod xsk_guard;

pub use addr::Addr;
pub use attr::{Attr, LinkAttr};
pub use fdb::Fdb;
pub use firewall::Firewall;
pub use host_ports::HostPorts;
pub use link::{Link, LinkKind, LinkRef};
pub use mac_check::MacCheck;
pub use masquerade::Masquerade;
pub use moved::Moved;
pub use neigh::Neigh;
pub use no_route::NoRoute;
pub use note::Note;
pub use packet_guard::PacketGuard;
pub use redirect::Redirect;
pub use route::Route;
pub use rule::Rule;
pub use shaping::Shaping;
pub use sysctl::Sysctl;
pub use vlan::PortVlan;
pub use vrf_member::VrfMember;
pub use xsk_guard::{XskGuard, XskLink};

use super::facts::{Facts, LinkFact, Need};
use crate::name::Ns;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Create.
    Add,
    /// Delete.
    Del,
}

impl Verb {
    /// Returns `add` or `del`, depending on the verb.
    pub fn word<T>(self, add: T, del: T) -> T {
        match self {
            Self::Add => add,
            Self::Del => del,
        }
    }
}

/// A kind of thing: its command, the facts it needs, and the check against them.
pub trait State {
    /// Returns the namespace of the thing.
    fn ns(&self) -> Ns {
        Ns::Host
    }

    /// Writes the command that creates or deletes the thing.
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Returns the facts needed to check the thing.
    fn needs(&self) -> Vec<Need>;

    /// Checks that the thing is present; the error names the difference.
    fn holds(&self, facts: &Facts) -> Result<(), String>;

    /// Checks that the thing is gone; the error names the rest.
    fn is_gone(&self, facts: &Facts) -> Result<(), String> {
        refuse_if(self.holds(facts).is_ok(), || {
            format!("it is still there: {}", Command(self))
        })
    }

    /// Returns the links that the thing is deleted with; none if it belongs to no link.
    fn goes_with(&self) -> Vec<&LinkRef> {
        Vec::new()
    }

    /// Returns the owner that the kernel keeps: network, container id and interface.
    fn owner(&self) -> Option<&str> {
        None
    }

    /// Updates `facts` with the thing, for a later plugin of the same plan.
    fn predict(&self, _facts: &mut Facts) {}
}

struct Command<'a, T: State + ?Sized>(&'a T);

impl<T: State + ?Sized> fmt::Display for Command<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.print(Verb::Add, f)
    }
}

/// Calls `$table` with a line for each kind of thing: its name, its type and its documentation.
#[macro_export]
macro_rules! for_each_thing {
    ($table:ident) => {
        $table! {
            Link(Link), "A link, or both ends of a pair.";
            Moved(Moved), "A host link moved into the container.";
            Attr(Attr), "An attribute of a link.";
            Vlan(PortVlan), "A VLAN on a bridge port.";
            Addr(Addr), "An address.";
            Route(Route), "A route.";
            NoRoute(NoRoute), "The absence of a route.";
            Neigh(Neigh), "A permanent neighbour.";
            Fdb(Fdb), "A permanent entry of a forwarding database.";
            Rule(Rule), "A policy routing rule.";
            VrfMember(VrfMember), "The membership of a link in a VRF.";
            Sysctl(Sysctl), "A sysctl.";
            Masquerade(Masquerade), "Masquerading of a source address.";
            MacCheck(MacCheck), "The only hardware address allowed on a bridge port.";
            HostPorts(HostPorts), "Host ports forwarded to a container.";
            Firewall(Firewall), "Forwarding for a container.";
            Shaping(Shaping), "Rate limits of an attachment.";
            PacketGuard(PacketGuard), "A limit of packet sockets.";
            XskGuard(XskGuard), "A guard of `AF_XDP` sockets.";
            XskLink(XskLink), "The only link refused to guarded `AF_XDP` sockets.";
            Note(Note), "A file for another program.";
            Redirect(Redirect), "A redirection of received packets to another link.";
        }
    };
}

/// Defines [`Thing`] from the table of kinds.
macro_rules! things {
    ($($kind:ident($of:ty), $doc:literal;)*) => {
        /// A thing that a plan creates, shares or deletes.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Thing {
            $(#[doc = $doc] $kind($of),)*
        }

        impl Thing {
            /// Returns the [`State`] of its kind.
            pub fn state(&self) -> &dyn State {
                match self {
                    $(Self::$kind(it) => it,)*
                }
            }
        }

        $(impl From<$of> for Thing {
            fn from(it: $of) -> Self {
                Self::$kind(it)
            }
        })*
    };
}

for_each_thing!(things);

impl Thing {
    /// True if the thing is a value of a link or namespace: it is deleted with that, and no step
    /// deletes it.
    pub fn is_setting(&self) -> bool {
        matches!(self, Self::Attr(_) | Self::Sysctl(_))
    }
}

fn refuse_if(wrong: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if wrong { Err(why()) } else { Ok(()) }
}

fn found<'a>(at: &LinkRef, facts: &'a Facts) -> Result<&'a LinkFact, String> {
    facts
        .link(at)
        .ok_or_else(|| format!("link {at} does not exist"))
}

/// Writes several commands as lines of a plan: each after the first begins with its namespace.
fn lines(f: &mut fmt::Formatter<'_>, lines: impl IntoIterator<Item = (Ns, String)>) -> fmt::Result {
    for (number, (ns, line)) in lines.into_iter().enumerate() {
        match number {
            0 => f.write_str(&line)?,
            _ => write!(f, "\n{:<5}{line}", ns.to_string())?,
        }
    }
    Ok(())
}
