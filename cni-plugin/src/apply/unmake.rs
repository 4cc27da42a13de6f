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
use nix::errno::Errno;
use std::fs::File;

/// The group of links that are going away; nobody else's by its number alone (`ip link show group 11641296`).
const GROUP: u32 = 0x00b1_a1d0;

/// Takes links of one namespace away; what became of each.
pub(super) fn links(kernel: &mut Kernel, ns: Ns, links: &[LinkRef]) -> Vec<Result<(), KernelError>> {
    for at in links {
        kernel.forget(at);
    }
    // In the container's namespace nobody else takes links away.
    let result = match (ns, links) {
        (Ns::Pod, [alone]) => by_name(kernel, alone).map(|result| vec![result]),
        _ => by_group(kernel, ns, links),
    };
    result.unwrap_or_else(|err| vec![Err(err); links.len()])
}

fn by_name(kernel: &mut Kernel, at: &LinkRef) -> Result<Result<(), KernelError>, KernelError> {
    Ok(kernel.route(at.ns)?.call(rtnl::DELLINK, 0, |out| link::by_name(&at.name, out)).map(drop))
}

fn by_group(kernel: &mut Kernel, ns: Ns, links: &[LinkRef]) -> Result<Vec<Result<(), KernelError>>, KernelError> {
    let socket = kernel.route(ns)?;
    for at in links {
        socket.push(rtnl::SETLINK, 0, |out| link::into_group(&at.name, GROUP, out));
    }
    let outcomes = socket.flush()?.into_iter();
    let mut results: Vec<_> = outcomes.map(|outcome| outcome.error.map_or(Ok(()), Err)).collect();
    if results.iter().all(Result::is_err) {
        return Ok(results);
    }
    let _turn = (ns == Ns::Host).then(turn).flatten();
    match socket.call(rtnl::DELLINK, 0, |out| link::by_group(GROUP, out)) {
        // Another call took ours along.
        Ok(_) | Err(KernelError { errno: Errno::ENODEV, .. }) => {}
        Err(err) => results.iter_mut().filter(|result| result.is_ok()).for_each(|result| *result = Err(err.clone())),
    }
    Ok(results)
}

/// Waits until no other call takes links of the host away: the folder of all records stands for them. Without it all goes as well, one call after the other.
fn turn() -> Option<File> {
    // It ends with the file.
    File::open(record::ROOT).ok().filter(|folder| folder.lock().is_ok())
}
