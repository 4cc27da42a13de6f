//! Holding the `AF_XDP` sockets of limited containers: by refusing them their link, or at the link below.

mod below;
mod bind;

use super::kernel::Kernel;
use super::lock::lock;
use crate::plan::link::LinkRef;
use crate::plan::xsk::{Hold, XskGuard};
use crate::sys::netlink::KernelError;
use nix::errno::Errno;

/// Holds those of the container.
pub(super) fn add(kernel: &mut Kernel, guard: &XskGuard) -> Result<(), KernelError> {
    let _held = lock()?;
    let held = match &guard.below {
        Some(at) => below::add(kernel, at, guard),
        None => bind::add(guard),
    };
    held.map_err(|err| {
        let place = guard.below.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
        let sentence = match err.errno {
            Errno::ENOSPC => format!("no more attachments of one network namespace are held{place}"),
            Errno::E2BIG => format!("no more attachments are held{place}"),
            _ => return err,
        };
        KernelError { ext_ack: Some(sentence), ..err }
    })
}

/// From now on only those that ask for one link of the container.
pub(super) fn narrow(kernel: &mut Kernel, guard: &XskGuard, at: &LinkRef) -> Result<(), KernelError> {
    let index = kernel.index(at)?;
    let _held = lock()?;
    bind::narrow(guard, index)
}

/// Ends what an attachment has.
pub(super) fn del(kernel: &mut Kernel, guard: &XskGuard) -> Result<(), KernelError> {
    let _held = lock()?;
    match &guard.below {
        Some(at) => below::del(kernel, at, guard),
        None => bind::release(|holds| holds.release(guard.netns, &guard.owner)),
    }
}

/// Ends all of an owner's.
pub(super) fn del_owner(kernel: &mut Kernel, owner: &str) -> Result<(), KernelError> {
    if owners(kernel)?.is_empty() {
        return Ok(());
    }
    let _held = lock()?;
    bind::release(|holds| holds.release_all(owner))?;
    below::del_owner(kernel, owner)
}

/// All whose sockets are held somehow.
pub fn owners(kernel: &mut Kernel) -> Result<Vec<String>, KernelError> {
    let all = bind::list()?.into_iter().chain(below::list(kernel)?);
    Ok(all.map(|hold| hold.owner).collect())
}

/// Whose sockets are held at a link, or by being refused.
pub fn observe(kernel: &mut Kernel, at: Option<&LinkRef>) -> Result<Vec<Hold>, KernelError> {
    match at {
        Some(at) => below::list_at(kernel, at),
        None => Ok(bind::list_if_started()?),
    }
}
