//! Effect of each kind of thing on the kernel: creation, deletion, and the requests for them.
//!
//! A new kind is a file here. Its line is in the table of things in braid-core.

pub mod addr;
pub(crate) mod attr;
mod claim;
pub(crate) mod elements;
pub mod firewall;
pub mod host_ports;
pub mod link;
pub mod mac_check;
pub mod masquerade;
pub(crate) mod moved;
pub(crate) mod neigh;
mod no_route;
mod note;
pub mod packet_guard;
pub(crate) mod redirect;
mod reference;
mod reference_tuning;
pub(crate) mod request;
pub mod route;
pub(crate) mod rule;
mod rules;
pub mod shaping;
pub(crate) mod shared;
pub(crate) mod sysctl;
pub mod tables;
mod verbs;
pub(crate) mod vlan;
pub(crate) mod vrf_member;
pub mod xsk_guard;

use verbs::Head;
pub(crate) use verbs::{Effect, Transport, found};

use crate::Cause;
use crate::kernel::Kernel;
use braid_core::for_each_thing;
use braid_core::plan::step::{Legacy, OwnedKind};
use braid_core::plan::thing::Thing;

/// Returns the effect of a thing.
macro_rules! effects {
    ($($kind:ident($of:ty), $doc:literal;)*) => {
        /// The effect of a thing.
        pub(crate) fn of(thing: &Thing) -> &dyn Effect {
            match thing {
                $(Thing::$kind(it) => it,)*
            }
        }
    };
}

for_each_thing!(effects);

/// Deletes every object of this kind that belongs to `owner`.
pub(crate) fn forget(kernel: &mut Kernel, kind: OwnedKind, owner: &str) -> Result<(), Cause> {
    match kind {
        OwnedKind::Masquerades => Ok(masquerade::del_owner(kernel.nft()?, owner)?),
        OwnedKind::HostPorts => host_ports::del_owner(kernel, owner),
        OwnedKind::Firewall => firewall::del_owner(kernel, owner),
        OwnedKind::XskGuards => xsk_guard::del_of_owner(owner),
    }
}

/// Deletes the leftovers of a reference plugin.
pub(crate) fn end_legacy(kernel: &mut Kernel, legacy: &Legacy) -> Result<(), Cause> {
    match legacy {
        Legacy::Masquerade {
            network,
            container_id,
            ifname,
        } => {
            let attachment = reference::Of {
                network,
                container_id,
                ifname: ifname.as_str(),
            };
            Ok(reference::del_masquerade(kernel.nft()?, attachment)?)
        }
        Legacy::MacCheck {
            container_id,
            ifname,
        } => Ok(reference::del_mac_check(
            kernel.nft()?,
            container_id,
            ifname,
        )?),
        Legacy::HostPorts {
            network,
            container_id,
        } => {
            let attachment = reference::Of {
                network,
                container_id,
                ifname: "",
            };
            Ok(reference::del_ports(kernel.nft()?, attachment)?)
        }
        Legacy::Firewall { addrs, zone } => firewall::del_reference(kernel, addrs, zone),
        Legacy::Rules { at, addrs, table } => rules::del(kernel, at, addrs, *table),
        Legacy::Tuning { at, file } => reference_tuning::restore(kernel, at, file),
    }
}
