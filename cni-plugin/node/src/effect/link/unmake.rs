//! Taking links away, many of them at once.
//!
//! To unregister a link the kernel holds its lock on all networks through several RCU grace periods, however many links it
//! unregisters at once, and each wait for that lock is a long one on a busy node. So a call notes which links it is about
//! to take away and waits for its turn. Whose turn it is puts the links of all notes into a group and takes the group away;
//! the others find nothing left to do, and have not asked for the kernel's lock.

use super::leaving::{Note, Notes};
use crate::Cause;
use crate::apply::kernel::Kernel;
use crate::store::lock::Lock;
use crate::sys::netlink::{KernelError, Outcome, Socket};
use crate::sys::rtnl::{self, link};
use braid_core::name::{IfName, Ns};
use braid_core::plan::thing::LinkRef;
use nix::errno::Errno;

/// The group of links that are going away; nobody else's by its number alone (`ip link show group 11641296`).
const GROUP: u32 = 0x00b1_a1d0;

/// Takes links of one namespace away; what became of each.
pub(crate) fn links(kernel: &mut Kernel, ns: Ns, links: &[LinkRef]) -> Vec<Result<(), Cause>> {
    for at in links {
        kernel.forget(at);
    }
    match ns {
        Ns::Host => by_group(kernel, links).unwrap_or_else(|err| vec![Err(err); links.len()]),
        // In the container's namespace nobody else takes links away.
        Ns::Pod if links.len() < 2 => by_name(kernel, links),
        Ns::Pod => in_pod(kernel, links).unwrap_or_else(|err| vec![Err(err); links.len()]),
    }
}

/// Takes the container's links away at once, and by name those that the group did not take.
///
/// A container may put links of its own into the group, whose number is known. With them it only gives away what it may take
/// away itself: the kernel asks both of whoever has `CAP_NET_ADMIN` there, and no link of another namespace is in a group of
/// this one. And a link that the kernel does not take away, such as `lo`, has it refuse the whole group, as if there
/// were none.
fn in_pod(kernel: &mut Kernel, links: &[LinkRef]) -> Result<Vec<Result<(), Cause>>, Cause> {
    let socket = kernel.route(Ns::Pod)?;
    for at in links {
        socket.push(rtnl::SETLINK, 0, |out| link::into_group(&at.name, GROUP, out));
    }
    socket.push(rtnl::DELLINK, 0, |out| link::by_group(GROUP, out));
    let mut outcomes: Vec<bool> = socket.flush()?.iter().map(|outcome| outcome.error.is_none()).collect();
    let is_gone = outcomes.pop().unwrap_or_default();
    let one = |(at, in_group)| if is_gone && in_group { Ok(()) } else { del_by_name(kernel, at) };
    Ok(links.iter().zip(outcomes).map(one).collect())
}

fn by_name(kernel: &mut Kernel, links: &[LinkRef]) -> Vec<Result<(), Cause>> {
    links.iter().map(|at| del_by_name(kernel, at)).collect()
}

fn del_by_name(kernel: &mut Kernel, at: &LinkRef) -> Result<(), Cause> {
    let socket = kernel.route(at.ns)?;
    let mut del = |name: &IfName| socket.call(rtnl::DELLINK, 0, |out| link::by_name(name, out)).map(drop);
    match del(&at.name) {
        // A call that was killed may not have come to rename it.
        Err(err) if err.errno == Errno::ENODEV && at.ns == Ns::Pod => Ok(del(&at.name.until_renamed())?),
        deleted => Ok(deleted?),
    }
}

fn by_group(kernel: &mut Kernel, links: &[LinkRef]) -> Result<Vec<Result<(), Cause>>, Cause> {
    let Ok(notes) = Notes::leave(kernel.host(), links) else { return Ok(by_name(kernel, links)) };
    let was_there = |note: &Option<Note>| note.as_ref().map(drop).ok_or_else(|| Errno::ENODEV.into());
    let results = notes.own.iter().map(was_there).collect();
    if notes.own.iter().all(Option::is_none) {
        // This may be a call's second try, the first of which ended before its note did.
        notes.of_others(kernel.host());
        return Ok(results);
    }
    if let Ok(_turn) = Lock::Links.hold()
        && (notes.are_gone() || take(kernel.host(), &notes)?)
    {
        return Ok(results);
    }
    let results = by_name(kernel, links);
    notes.end();
    Ok(results)
}

/// Takes the links of all notes away at once, and their notes; whether the call's own are gone.
fn take(socket: &mut Socket, notes: &Notes) -> Result<bool, KernelError> {
    let others = notes.of_others(socket);
    let all: Vec<&Note> = notes.own.iter().flatten().chain(&others).collect();
    for note in &all {
        socket.push(rtnl::SETLINK, 0, |out| link::into_group(&note.link, GROUP, out));
    }
    socket.push(rtnl::DELLINK, 0, |out| link::by_group(GROUP, out));
    let is_gone = |outcome: &Outcome| outcome.error.as_ref().is_none_or(|err| err.errno == Errno::ENODEV);
    let outcomes: Vec<bool> = socket.flush()?.iter().map(is_gone).collect();
    // Something may be in the group that the kernel does not take away.
    let Some((true, in_group)) = outcomes.split_last() else { return Ok(false) };
    for (note, _) in all.iter().zip(in_group).filter(|(_, in_group)| **in_group) {
        note.end();
    }
    Ok(notes.are_gone())
}
