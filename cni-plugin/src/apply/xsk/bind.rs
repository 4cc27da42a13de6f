//! One program for the whole node, which refuses them. The first attachment brings it there, the last one takes it away.

use crate::plan::xsk::{Hold, XskGuard};
use crate::sys::bpf::xsk::{Holds, bind};
use crate::sys::netlink::KernelError;
use nix::errno::Errno;

pub(super) fn add(guard: &XskGuard) -> Result<(), KernelError> {
    let holds = bind::ensure_holds()?;
    super::hold(&holds, guard)?;
    Ok(bind::ensure_started(&holds)?)
}

pub(super) fn narrow(XskGuard { netns, owner, .. }: &XskGuard, index: u32) -> Result<(), KernelError> {
    let holds = bind::holds()?.ok_or(Errno::ENOENT)?;
    Ok(holds.narrow(*netns, owner, index)?)
}

/// Ends some, and with the last one the program and what a call that was killed had begun.
pub(super) fn release(some: impl Fn(&Holds) -> Result<(), Errno>) -> Result<(), KernelError> {
    let is_idle = match bind::holds()? {
        Some(holds) => {
            some(&holds)?;
            holds.are_empty()?
        }
        None => true,
    };
    if is_idle { Ok(bind::stop()?) } else { Ok(()) }
}

/// Whether there may be something to end.
pub(super) fn is_begun() -> Result<bool, Errno> {
    bind::is_begun()
}

pub(super) fn list() -> Result<Vec<Hold>, Errno> {
    bind::holds()?.map_or_else(|| Ok(Vec::new()), |holds| holds.list())
}

/// Nobody where the program is gone.
pub(super) fn list_if_started() -> Result<Vec<Hold>, Errno> {
    if bind::is_started()? { list() } else { Ok(Vec::new()) }
}
