//! Elements of nf_tables that come, whoever had the same before, and those that go away: of several steps in one
//! transaction.
//!
//! What a transaction took away the kernel frees after an RCU grace period, and who closes a socket of nf_tables waits for
//! what it has not begun to free. It begins with a first transaction at once; a second one would have a DEL wait.

use super::kernel::Kernel;
use super::{firewall as forwarding, holder, hostports};
use crate::plan::thing::Thing;
use crate::plan::thing::firewall::Gate;
use crate::sys::netlink::KernelError;
use crate::sys::nft::{self, Spot, firewall, mac_check, masquerade};
use nix::errno::Errno;

/// Adds what belongs to a container's address or link. Who has the same is dead, since the address or the link is this
/// container's now.
pub(super) fn add(kernel: &mut Kernel, thing: &Thing) -> Result<(), KernelError> {
    match add_new(kernel, thing) {
        Err(err) if err.errno == Errno::EEXIST => {
            let (own, others) = owners(kernel, thing)?;
            // A call that takes longer than that has read long ago what it is to take away.
            let _quiet = holder::quiet(own, others.iter().map(String::as_str)).ok();
            clear(kernel, thing)?;
            add_new(kernel, thing)
        }
        other => other,
    }
}

fn add_new(kernel: &mut Kernel, thing: &Thing) -> Result<(), KernelError> {
    match thing {
        Thing::Masquerade(what) => masquerade::add(kernel.nft()?, what),
        Thing::MacCheck(what) => mac_check::add(kernel.nft()?, what),
        Thing::Firewall(what) => forwarding::add(kernel, what),
        _ => Ok(()),
    }
}

/// Owners of the thing's elements: the wanted one, and those that have them.
fn owners<'a>(kernel: &mut Kernel, thing: &'a Thing) -> Result<(&'a str, Vec<String>), KernelError> {
    let socket = kernel.nft()?;
    Ok(match thing {
        Thing::Masquerade(what) => (&what.owner, masquerade::owner(socket, what.source)?.into_iter().collect()),
        Thing::MacCheck(what) => (&what.owner, mac_check::owner(socket, &what.port)?.into_iter().collect()),
        Thing::Firewall(what) => {
            let owners = what.addrs.iter().map(|addr| firewall::owner(socket, *addr));
            (&what.owner, owners.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        }
        _ => ("", Vec::new()),
    })
}

fn clear(kernel: &mut Kernel, thing: &Thing) -> Result<(), KernelError> {
    let socket = kernel.nft()?;
    match thing {
        Thing::Masquerade(what) => masquerade::del_source(socket, what.source),
        Thing::MacCheck(what) => mac_check::del(socket, &what.port),
        Thing::Firewall(what) => what.addrs.iter().try_for_each(|addr| firewall::del_addr(socket, *addr)),
        _ => Ok(()),
    }
}

/// Whether all of the thing are elements, and its owner's alone.
pub(super) fn is_only(thing: &Thing) -> bool {
    match thing {
        Thing::Masquerade(_) | Thing::HostPorts(_) => true,
        Thing::Firewall(what) => what.isolation.is_none() && matches!(what.gate, Gate::Chains { .. }),
        _ => false,
    }
}

/// Takes away what is still its owner's; what became of each.
pub(super) fn del(kernel: &mut Kernel, things: &[&Thing]) -> Vec<Result<(), KernelError>> {
    let mut all = Vec::new();
    let noted: Vec<_> = things.iter().map(|thing| note(kernel, thing, &mut all)).collect();
    let deleted = kernel.nft().and_then(|socket| nft::del_all(socket, &all));
    noted.into_iter().map(|noted| noted.and(deleted.clone())).collect()
}

fn note(kernel: &mut Kernel, thing: &Thing, all: &mut Vec<Spot>) -> Result<(), KernelError> {
    match thing {
        Thing::Masquerade(what) => all.extend(masquerade::owned(kernel.nft()?, what)?),
        Thing::Firewall(what) => all.extend(firewall::owned(kernel.nft()?, what)?),
        Thing::HostPorts(what) => hostports::give_up(kernel, what, all)?,
        _ => {}
    }
    Ok(())
}
