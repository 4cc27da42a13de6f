//! Things: objects and settings of the kernel that plans create, one file per kind. The file of a
//! kind has the command, the facts needed for the check, and the check. It also has the links that
//! the thing is deleted with, and the thing's owner.
//!
//! A new kind is a file here, a line in `for_each_thing`, and a file with its effect on the kernel.

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
pub mod state;
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
pub use state::{Change, Phase, State, Verb};
pub use sysctl::Sysctl;
pub use vlan::PortVlan;
pub use vrf_member::VrfMember;
pub use xsk_guard::{XskGuard, XskLink};

use serde::{Deserialize, Serialize};

/// Calls the macro `$table` with a line for each kind of thing: name, type and documentation.
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

/// Defines [`Thing`], with a variant for each line of `for_each_thing`.
macro_rules! things {
    ($($kind:ident($of:ty), $doc:literal;)*) => {
        /// A thing that a plan creates, shares or deletes.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Thing {
            $(#[doc = $doc] $kind($of),)*
        }

        impl Thing {
            /// Returns the thing's implementation of [`State`].
            pub fn state(&self) -> &dyn State {
                match self {
                    $(Self::$kind(it) => it,)*
                }
            }

            /// Returns the thing's implementation of [`State`], for changes.
            pub fn state_mut(&mut self) -> &mut dyn State {
                match self {
                    $(Self::$kind(it) => it,)*
                }
            }

            /// True if both are the same object, so that deleting either one has the same effect.
            pub fn is_same(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$kind(one), Self::$kind(other)) => one.is_same(other),)*
                    _ => false,
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
