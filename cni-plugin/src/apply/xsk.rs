//! Holding the `AF_XDP` sockets of limited containers: by refusing them their link, or at the link below.

mod below;
mod bind;

use super::Error;
use super::kernel::Kernel;
use super::lock::Lock;
use crate::plan::link::LinkRef;
use crate::plan::step::Ns;
use crate::plan::xsk::{Hold, XskGuard};
use crate::sys::bpf::xsk::Holds;
use crate::sys::netlink::KernelError;
use crate::sys::xdp_sockets;
use nix::errno::Errno;

/// Holds those of the container.
pub(super) fn add(kernel: &mut Kernel, guard: &XskGuard) -> Result<(), KernelError> {
    let _held = Lock::Ebpf.hold_for_step()?;
    match &guard.below {
        Some(at) => below::add(kernel, at, guard),
        None => bind::add(guard),
    }
}

/// Writes it down where a program looks.
fn hold(holds: &Holds, XskGuard { below, netns, owner }: &XskGuard) -> Result<(), KernelError> {
    let place = below.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
    holds.hold(*netns, owner).map_err(|errno| match errno {
        Errno::ENOSPC => said(errno, format!("no more attachments of one network namespace are held{place}")),
        Errno::E2BIG => said(errno, format!("no more attachments are held{place}")),
        _ => errno.into(),
    })
}

fn said(errno: Errno, sentence: String) -> KernelError {
    KernelError { ext_ack: Some(sentence), ..errno.into() }
}

/// From now on only those that ask for one link of the container; `EBUSY` where the link was there and one may have it.
pub(super) fn narrow(kernel: &mut Kernel, guard: &XskGuard, at: &LinkRef, was_there: bool) -> Result<(), KernelError> {
    let index = kernel.index(at)?;
    if was_there && sockets(kernel)? > 0 {
        return Err(said(Errno::EBUSY, format!("an AF_XDP socket of the container may have link {at} already")));
    }
    let _held = Lock::Ebpf.hold_for_step()?;
    bind::narrow(guard, index)
}

fn sockets(kernel: &Kernel) -> Result<u64, KernelError> {
    let count = kernel.run_in(Ns::Pod, xdp_sockets::count).map_err(|err| err.cause)?;
    count.map_err(|err| Error::io("count AF_XDP sockets of the container", &err).cause)
}

/// Ends what an attachment has.
pub(super) fn del(kernel: &mut Kernel, guard: &XskGuard) -> Result<(), KernelError> {
    let _held = Lock::Ebpf.hold_for_step()?;
    match &guard.below {
        Some(at) => below::del(kernel, at, guard),
        None => bind::release(|holds| holds.release(guard.netns, &guard.owner)),
    }
}

/// Ends all of an owner's, and what a call that was killed had begun.
pub(super) fn del_owner(kernel: &mut Kernel, owner: &str) -> Result<(), KernelError> {
    if bind::is_begun()? {
        let _held = Lock::Ebpf.hold_for_step()?;
        bind::release(|holds| holds.release_all(owner))?;
    }
    if below::is_begun(kernel)? {
        let _held = Lock::Ebpf.hold_for_step()?;
        below::del_owner(kernel, owner)?;
    }
    Ok(())
}

/// All whose sockets are held somehow.
pub fn owners(kernel: &mut Kernel) -> Result<Vec<String>, KernelError> {
    let all = bind::list()?.into_iter().chain(below::list(kernel)?);
    Ok(all.map(|hold| hold.owner).collect())
}

/// Takes away what holds nobody.
pub fn sweep() -> Result<(), KernelError> {
    if bind::is_begun()? {
        let _held = Lock::Ebpf.hold_for_step()?;
        bind::release(|_| Ok(()))?;
    }
    Ok(())
}

/// Whose sockets are held at a link, or by being refused.
pub fn observe(kernel: &mut Kernel, at: Option<&LinkRef>) -> Result<Vec<Hold>, KernelError> {
    match at {
        Some(at) => below::list_at(kernel, at),
        None => Ok(bind::list_if_started()?),
    }
}
