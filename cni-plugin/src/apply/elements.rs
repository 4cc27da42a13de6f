//! Elements of nf_tables that come, whoever had the same before, and those that go away: of several steps in one
//! transaction.
//!
//! What a transaction took away the kernel frees after an RCU grace period, and who closes a socket of nf_tables waits for
//! what it has not begun to free. It begins with a first transaction at once; a second one would have a DEL wait.

use super::kernel::Kernel;
use super::{firewall as forwarding, holder, hostports};
use crate::plan::nft::Gate;
use crate::plan::step::Step;
use crate::sys::netlink::KernelError;
use crate::sys::nft::{self, Spot, firewall, mac_check, masquerade};
use nix::errno::Errno;

/// Adds what belongs to a container's address or link. Who has the same is dead, since the address or the link is this
/// container's now.
pub(super) fn add(kernel: &mut Kernel, step: &Step) -> Result<(), KernelError> {
    match add_new(kernel, step) {
        Err(err) if err.errno == Errno::EEXIST => {
            let (own, others) = owners(kernel, step)?;
            // A call that takes longer than that has read long ago what it is to take away.
            let _quiet = holder::quiet(own, others.iter().map(String::as_str)).ok();
            clear(kernel, step)?;
            add_new(kernel, step)
        }
        other => other,
    }
}

fn add_new(kernel: &mut Kernel, step: &Step) -> Result<(), KernelError> {
    match step {
        Step::AddMasquerade(what) => masquerade::add(kernel.nft()?, what),
        Step::AddMacCheck(what) => mac_check::add(kernel.nft()?, what),
        Step::AddFirewall(what) => forwarding::add(kernel, what),
        _ => Ok(()),
    }
}

/// Owners of the step's elements: the wanted one, and those that have them.
fn owners<'a>(kernel: &mut Kernel, step: &'a Step) -> Result<(&'a str, Vec<String>), KernelError> {
    let socket = kernel.nft()?;
    Ok(match step {
        Step::AddMasquerade(what) => (&what.owner, masquerade::owner(socket, what.source)?.into_iter().collect()),
        Step::AddMacCheck(what) => (&what.owner, mac_check::owner(socket, &what.port)?.into_iter().collect()),
        Step::AddFirewall(what) => {
            let owners = what.addrs.iter().map(|addr| firewall::owner(socket, *addr));
            (&what.owner, owners.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        }
        _ => ("", Vec::new()),
    })
}

fn clear(kernel: &mut Kernel, step: &Step) -> Result<(), KernelError> {
    let socket = kernel.nft()?;
    match step {
        Step::AddMasquerade(what) => masquerade::del_source(socket, what.source),
        Step::AddMacCheck(what) => mac_check::del(socket, &what.port),
        Step::AddFirewall(what) => what.addrs.iter().try_for_each(|addr| firewall::del_addr(socket, *addr)),
        _ => Ok(()),
    }
}

/// Whether all that the step takes away are elements, and those of its owner alone.
pub(super) fn is_step(step: &Step) -> bool {
    match step {
        Step::DelMasquerade(_) | Step::DelHostPorts(_) => true,
        Step::DelFirewall(what) => what.isolation.is_none() && matches!(what.gate, Gate::Chains { .. }),
        _ => false,
    }
}

/// Takes away what is still its owner's; what became of each step.
pub(super) fn del(kernel: &mut Kernel, steps: &[Step]) -> Vec<Result<(), KernelError>> {
    let mut all = Vec::new();
    let noted: Vec<_> = steps.iter().map(|step| note(kernel, step, &mut all)).collect();
    let deleted = kernel.nft().and_then(|socket| nft::del_all(socket, &all));
    noted.into_iter().map(|noted| noted.and(deleted.clone())).collect()
}

fn note(kernel: &mut Kernel, step: &Step, all: &mut Vec<Spot>) -> Result<(), KernelError> {
    match step {
        Step::DelMasquerade(what) => all.extend(masquerade::owned(kernel.nft()?, what)?),
        Step::DelFirewall(what) => all.extend(firewall::owned(kernel.nft()?, what)?),
        Step::DelHostPorts(what) => hostports::give_up(kernel, what, all)?,
        _ => {}
    }
    Ok(())
}
