//! The effect of each kind of thing that is done by itself: how it comes, and how it goes.

use super::kernel::Kernel;
use super::{elements, firewall, hostports, reference_tuning, shape, xsk};
use crate::plan::step::{Kind, Legacy};
use crate::plan::thing::Thing;
use crate::sys::netlink::KernelError;
use crate::sys::nft::{mac_check, masquerade, packet_guard, reference};
use nix::errno::Errno;

/// Has one thing come. Links, their attributes, addresses, routes, sysctls and limits are made several at a time.
pub(super) fn add(kernel: &mut Kernel, thing: &Thing) -> Result<(), KernelError> {
    match thing {
        Thing::Masquerade(_) | Thing::MacCheck(_) | Thing::Firewall(_) => elements::add(kernel, thing),
        Thing::HostPorts(all) => hostports::add(kernel, all),
        Thing::PacketGuard(guard) => packet_guard::add(kernel.nft_of(guard.at.ns)?, guard),
        Thing::XskGuard(guard) => xsk::add(guard),
        Thing::XskLink(link) => xsk::narrow(kernel, &link.guard, &link.at, link.was_there),
        Thing::Redirect(redirect) => shape::redirect(kernel, redirect),
        Thing::Link(_)
        | Thing::Attr(_)
        | Thing::Vlan(_)
        | Thing::Addr(_)
        | Thing::Route(_)
        | Thing::Sysctl(_)
        | Thing::Shaping(_) => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// Has one thing go.
pub(super) fn del(kernel: &mut Kernel, thing: &Thing) -> Result<(), KernelError> {
    match thing {
        Thing::MacCheck(check) => mac_check::del_owned(kernel.nft()?, check),
        Thing::Firewall(all) => firewall::del(kernel, all),
        Thing::Shaping(shaping) => shape::del(kernel, shaping),
        Thing::PacketGuard(guard) => packet_guard::del(kernel.nft_of(guard.at.ns)?, &guard.at.name),
        Thing::XskGuard(guard) => xsk::del(kernel, guard),
        Thing::Redirect(redirect) => shape::end_redirect(kernel, &redirect.from),
        // It goes with the hold.
        Thing::XskLink(_) => Ok(()),
        Thing::Link(_)
        | Thing::Attr(_)
        | Thing::Vlan(_)
        | Thing::Addr(_)
        | Thing::Route(_)
        | Thing::Sysctl(_)
        | Thing::Masquerade(_)
        | Thing::HostPorts(_) => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// Has all of a kind go that is of one owner.
pub(super) fn forget(kernel: &mut Kernel, kind: Kind, owner: &str) -> Result<(), KernelError> {
    match kind {
        Kind::Masquerades => masquerade::del_owner(kernel.nft()?, owner),
        Kind::HostPorts => hostports::del_owner(kernel, owner),
        Kind::Firewall => firewall::del_owner(kernel, owner),
        Kind::XskGuards => xsk::del_of_owner(owner),
    }
}

/// Has go what a reference plugin made.
pub(super) fn end_legacy(kernel: &mut Kernel, legacy: &Legacy) -> Result<(), KernelError> {
    match legacy {
        Legacy::Masquerade { network, container_id, ifname } => {
            let of = reference::Of { network, container_id, ifname: ifname.as_str() };
            reference::del_masquerade(kernel.nft()?, of)
        }
        Legacy::MacCheck { container_id, ifname } => reference::del_mac_check(kernel.nft()?, container_id, ifname),
        Legacy::HostPorts { network, container_id } => {
            let of = reference::Of { network, container_id, ifname: "" };
            reference::del_ports(kernel.nft()?, of)
        }
        Legacy::Firewall { addrs, zone } => firewall::del_reference(kernel, addrs, zone),
        Legacy::Tuning { at, file } => reference_tuning::restore(kernel, at, file),
    }
}
