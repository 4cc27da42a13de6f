//! The things that plans make, one file each: how it prints, what has to be read to judge it, when
//! it holds, which links it goes away with, whose it is.
//!
//! A new kind is a file here and a line in [`things`], and a file of its effect on the kernel.

pub mod addr;
pub mod advertised;
pub mod attr;
pub mod condition;
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

/// The direction of a change: a thing comes or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// It comes.
    Add,
    /// It goes.
    Del,
}

impl Verb {
    /// One of two words.
    pub fn word<T>(self, add: T, del: T) -> T {
        match self {
            Self::Add => add,
            Self::Del => del,
        }
    }
}

/// A kind of thing: its command, the facts it needs and how they judge it.
pub trait State {
    /// The namespace that it is in.
    fn ns(&self) -> Ns {
        Ns::Host
    }

    /// Writes the command that has it come or go.
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// The facts needed to judge it.
    fn needs(&self) -> Vec<Need>;

    /// `Ok` where it is there; otherwise what differs.
    fn holds(&self, facts: &Facts) -> Result<(), String>;

    /// `Ok` where it is gone; otherwise what is left.
    fn is_gone(&self, facts: &Facts) -> Result<(), String> {
        refuse_if(self.holds(facts).is_ok(), || {
            format!("it is still there: {}", Command(self))
        })
    }

    /// The links without which it does not exist either; none where it is no link's.
    fn goes_with(&self) -> Vec<&LinkRef> {
        Vec::new()
    }

    /// Its owner, where the kernel is told: network, container id and interface.
    fn owner(&self) -> Option<&str> {
        None
    }

    /// Notes what a later plugin of the same plan may ask for.
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
            Link(Link), "A link; of a pair both ends.";
            Moved(Moved), "A link of the host that is in the container.";
            Attr(Attr), "An attribute of a link.";
            Vlan(PortVlan), "A VLAN on a bridge port.";
            Addr(Addr), "An address.";
            Route(Route), "A route.";
            NoRoute(NoRoute), "The absence of a route.";
            Neigh(Neigh), "A neighbour.";
            Rule(Rule), "A rule of policy routing.";
            VrfMember(VrfMember), "The membership of a link in a VRF.";
            Sysctl(Sysctl), "A sysctl.";
            Masquerade(Masquerade), "Masquerading of one source.";
            MacCheck(MacCheck), "The only hardware address of a bridge port.";
            HostPorts(HostPorts), "Ports of the host that lead to a container.";
            Firewall(Firewall), "Forwarding for a container.";
            Shaping(Shaping), "Limits of an attachment.";
            PacketGuard(PacketGuard), "A limit of what packet sockets send.";
            XskGuard(XskGuard), "A hold on `AF_XDP` sockets.";
            XskLink(XskLink), "The only link that held `AF_XDP` sockets can't have.";
            Note(Note), "A file for another program.";
            Redirect(Redirect), "The way of what comes in at one link out through another.";
        }
    };
}

/// Makes [`Thing`] of its kinds.
macro_rules! things {
    ($($kind:ident($of:ty), $doc:literal;)*) => {
        /// Something that a plan creates, shares or deletes.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Thing {
            $(#[doc = $doc] $kind($of),)*
        }

        impl Thing {
            /// The [`State`] of its kind.
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
    /// True if it is a value that something has: it goes with its link or namespace, and nothing
    /// takes it away.
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

/// Writes several commands, each line but the first behind its namespace, as lines of a plan are.
fn lines(f: &mut fmt::Formatter<'_>, lines: impl IntoIterator<Item = (Ns, String)>) -> fmt::Result {
    for (number, (ns, line)) in lines.into_iter().enumerate() {
        match number {
            0 => f.write_str(&line)?,
            _ => write!(f, "\n{:<5}{line}", ns.to_string())?,
        }
    }
    Ok(())
}
