//! Guard that refuses `AF_XDP` sockets of rate-limited containers: one program for the whole node,
//! with a map element for each attachment. The first guarded attachment attaches the program, and
//! the last guarded attachment to be deleted detaches it.

pub(crate) mod bind;
mod holds;
mod sockets;

use super::Effect;
use crate::kernel::Kernel;
use crate::store::lock::Lock;
use crate::{Cause, Context, Error};
use braid_core::name::Ns;
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::xsk_guard::XskBinding;
use braid_core::plan::thing::{LinkRef, XskGuard, XskLink};
use holds::Holds;
use nix::errno::Errno;

impl Effect for XskGuard {
    fn add(&self, _kernel: &mut Kernel) -> Result<(), Cause> {
        add(self)
    }

    fn del(&self, _kernel: &mut Kernel) -> Result<(), Cause> {
        del(self)
    }

    fn is_several(&self) -> bool {
        true
    }
}

impl Effect for XskLink {
    fn add(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        narrow(kernel, &self.guard, &self.at, self.was_there)
    }

    /// Does nothing: the entry is deleted with the attachment's guard.
    fn del(&self, _kernel: &mut Kernel) -> Result<(), Cause> {
        Ok(())
    }
}

/// Refuses `AF_XDP` sockets of the container on all of its links.
fn add(guard: &XskGuard) -> Result<(), Cause> {
    let _held = Lock::Ebpf.hold()?;
    let holds = bind::ensure_holds()?;
    match holds.hold(guard.netns, &guard.owner) {
        Err(Errno::ENOSPC) => Err(Cause::Refused(
            "no guard is free for another attachment of this network namespace".to_owned(),
        )),
        Err(Errno::E2BIG) => Err(Cause::Refused(
            "no guard is free for another attachment".to_owned(),
        )),
        held => {
            held?;
            Ok(bind::ensure_started(&holds)?)
        }
    }
}

/// Restricts the guard to one link of the container. Returns `Busy` if the link existed before and
/// a socket may be bound to it already.
fn narrow(
    kernel: &mut Kernel,
    guard: &XskGuard,
    at: &LinkRef,
    was_there: bool,
) -> Result<(), Cause> {
    let index = kernel.index(at)?;
    if was_there && count(kernel)? > 0 {
        return Err(Cause::Busy(format!(
            "an AF_XDP socket of the container may already be bound to link {at}"
        )));
    }
    let _held = Lock::Ebpf.hold()?;
    let holds = bind::holds()?.ok_or(Errno::ENOENT)?;
    Ok(holds.narrow(guard.netns, &guard.owner, index)?)
}

fn count(kernel: &Kernel) -> Result<u64, Cause> {
    Ok(kernel
        .run_in(Ns::Pod, sockets::count)?
        .doing("count AF_XDP sockets of the container")?)
}

/// Deletes an attachment's guard.
fn del(guard: &XskGuard) -> Result<(), Cause> {
    let _held = Lock::Ebpf.hold()?;
    release(|holds| holds.release(guard.netns, &guard.owner))
}

/// Deletes an owner's guards, and the leftovers of a killed call.
pub(super) fn del_of_owner(owner: &str) -> Result<(), Cause> {
    release_begun(|holds| holds.release_all(owner))
}

/// Deletes the program and its map if the map has no attachment.
pub fn sweep() -> Result<(), Cause> {
    release_begun(|_| Ok(()))
}

/// Calls `some` to delete entries. Does nothing if there can be no entries.
fn release_begun(some: impl Fn(&Holds) -> Result<(), Errno>) -> Result<(), Cause> {
    if !bind::is_begun()? {
        return Ok(());
    }
    let _held = Lock::Ebpf.hold()?;
    release(some)
}

/// Calls `some` to delete entries. If no entry is left, also deletes the program and the leftovers
/// of a killed call.
fn release(some: impl Fn(&Holds) -> Result<(), Errno>) -> Result<(), Cause> {
    let is_idle = match bind::holds()? {
        Some(holds) => {
            some(&holds)?;
            holds.are_empty()?
        }
        None => true,
    };
    if is_idle { Ok(bind::stop()?) } else { Ok(()) }
}

/// Lists the owners of all entries.
pub fn owners() -> Result<Vec<String>, Cause> {
    Ok(list()?.into_iter().map(|hold| hold.owner).collect())
}

/// Lists the attachments whose sockets are refused. Empty if the program is not attached.
pub fn observe() -> Result<Vec<XskBinding>, Cause> {
    if bind::is_started()? {
        Ok(list()?)
    } else {
        Ok(Vec::new())
    }
}

#[cold]
pub(crate) fn read(facts: &mut Facts) -> Result<(), Error> {
    facts.xsk_guards = observe().doing("list the AF_XDP guards")?;
    Ok(())
}

fn list() -> Result<Vec<XskBinding>, Errno> {
    bind::holds()?.map_or_else(|| Ok(Vec::new()), |holds| holds.list())
}
