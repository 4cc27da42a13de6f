//! Taking links away, many of them at once.
//!
//! To unregister a link the kernel holds its lock on all networks through several RCU grace periods, however many links it
//! unregisters at once. So a call puts its links into a group, waits for its turn, and takes the whole group away: what
//! other calls have put there meanwhile goes along, and they find nothing left to do.

use super::kernel::Kernel;
use super::record;
use crate::plan::step::{LinkRef, Ns};
use crate::sys::netlink::KernelError;
use crate::sys::rtnl::{self, link};
use crate::sys::signal;
use nix::errno::Errno;
use std::fs::File;

/// The group of links that are going away; nobody else's by its number alone (`ip link show group 11641296`).
const GROUP: u32 = 0x00b1_a1d0;

/// Takes links of one namespace away; what became of each.
pub(super) fn links(kernel: &mut Kernel, ns: Ns, links: &[LinkRef]) -> Vec<Result<(), KernelError>> {
    for at in links {
        kernel.forget(at);
    }
    match ns {
        Ns::Host => by_group(kernel, links).unwrap_or_else(|err| vec![Err(err); links.len()]),
        // In the container's namespace nobody else takes links away, and it may put its own into any group.
        Ns::Pod => by_name(kernel, links),
    }
}

fn by_name(kernel: &mut Kernel, links: &[LinkRef]) -> Vec<Result<(), KernelError>> {
    let one = |at: &LinkRef| {
        let socket = kernel.route(at.ns)?;
        socket.call(rtnl::DELLINK, 0, |out| link::by_name(&at.name, out)).map(drop)
    };
    links.iter().map(one).collect()
}

fn by_group(kernel: &mut Kernel, links: &[LinkRef]) -> Result<Vec<Result<(), KernelError>>, KernelError> {
    let socket = kernel.route(Ns::Host)?;
    for at in links {
        socket.push(rtnl::SETLINK, 0, |out| link::into_group(&at.name, GROUP, out));
    }
    let outcomes = socket.flush()?.into_iter();
    let results: Vec<_> = outcomes.map(|outcome| outcome.error.map_or(Ok(()), Err)).collect();
    if results.iter().all(Result::is_err) {
        return Ok(results);
    }
    let Some(_turn) = turn() else { return Ok(by_name(kernel, links)) };
    match socket.call(rtnl::DELLINK, 0, |out| link::by_group(GROUP, out)) {
        Ok(_) => Ok(results),
        // Another call took ours along.
        Err(err) if err.errno == Errno::ENODEV => Ok(results),
        // Something is in the group that the kernel does not take away.
        Err(_) => Ok(by_name(kernel, links)),
    }
}

/// Waits until no other call takes links of the host away: the folder of all records stands for them. None after a
/// second, in which one would be done: what holds it up must not hold up all others.
fn turn() -> Option<File> {
    // The lock ends with the file.
    let folder = File::open(record::ROOT).ok()?;
    let locked = signal::interrupted_after(1, || folder.lock());
    locked.ok()?.ok().map(|()| folder)
}
