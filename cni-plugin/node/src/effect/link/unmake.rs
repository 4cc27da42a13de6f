//! Taking links away, many of them at once.
//!
//! To unregister a link the kernel holds its lock on all networks through several RCU grace
//! periods, however many links it unregisters at once, and each wait for that lock is a long one on
//! a busy node. So a call notes which links it is about to take away and waits for its turn. Whose
//! turn it is puts the links of all notes into a group and takes the group away; the others find
//! nothing left to do, and have not asked for the kernel's lock.
//!
//! A request is for the links of one namespace, but takes the other ends of pairs along. So the
//! plan may name a pair by its end in the container, to go with other links there (`plan/undo.rs`).

use super::deletion_queue::{Note, Notes};
use crate::Cause;
use crate::kernel::Kernel;
use crate::store::lock::Lock;
use crate::sys::netlink::{KernelError, Outcome, Socket};
use crate::sys::rtnl::{self, link};
use braid_core::name::{IfName, Ns};
use braid_core::plan::facts::LinkFact;
use braid_core::plan::thing::{Link, LinkRef};
use nix::errno::Errno;

/// The group of links that are going away; nobody else's by its number alone (`ip link show group
/// 11641296`).
const GROUP: u32 = 0x00b1_a1d0;

/// Takes links of one namespace away; what became of each.
pub(crate) fn links(kernel: &mut Kernel, ns: Ns, links: &[&Link]) -> Vec<Result<(), Cause>> {
    for at in links.iter().flat_map(|link| link.ends()) {
        kernel.forget(at);
    }
    match ns {
        Ns::Host => of_host(
            kernel,
            &links.iter().map(|link| link.at.clone()).collect::<Vec<_>>(),
        ),
        // In the container's namespace nobody else takes links away.
        Ns::Pod => of_pod(kernel, links),
    }
}

fn of_host(kernel: &mut Kernel, links: &[LinkRef]) -> Vec<Result<(), Cause>> {
    by_group(kernel, links).unwrap_or_else(|err| vec![Err(err); links.len()])
}

/// Takes the container's links away at once; by name those that the group did not take, pairs by
/// their ends on the host.
fn of_pod(kernel: &mut Kernel, links: &[&Link]) -> Vec<Result<(), Cause>> {
    let gone = in_pod(kernel, links).unwrap_or_default();
    let is_gone = |at: usize| gone.get(at).copied().unwrap_or_default();
    let left = links.iter().enumerate().filter(|(at, _)| !is_gone(*at));
    let pairs: Vec<LinkRef> = left
        .filter_map(|(_, link)| link.host_end())
        .cloned()
        .collect();
    let mut of_pairs = if pairs.is_empty() {
        Vec::new()
    } else {
        of_host(kernel, &pairs)
    }
    .into_iter();
    let one = |(at, link): (usize, &&Link)| match link.host_end() {
        _ if is_gone(at) => Ok(()),
        Some(_) => of_pairs.next().unwrap_or(Ok(())),
        None => del_by_name(kernel, &link.at),
    };
    links.iter().enumerate().map(one).collect()
}

/// Deletes two links or more of the container by a group; which of them are gone.
///
/// A container may put links of its own into the group, whose number is known. With them it only
/// gives away what it may take away itself: the kernel asks both of whoever has `CAP_NET_ADMIN`
/// there, and no link of another namespace is in a group of this one. And a link that the kernel
/// does not take away, such as `lo`, has it refuse the whole group, as if there were none.
fn in_pod(kernel: &mut Kernel, links: &[&Link]) -> Result<Vec<bool>, Cause> {
    let none = vec![false; links.len()];
    if links.len() < 2 || !kernel.has_pod() {
        return Ok(none);
    }
    // A pair by its index: its end in the container may have another name by now.
    let mut ends = Vec::new();
    for (at, link) in links.iter().enumerate() {
        match link.host_end() {
            Some(host) => ends.extend(end_in_pod(kernel, host)?.map(|index| (at, Some(index)))),
            None => ends.push((at, None)),
        }
    }
    if ends.len() < 2 {
        return Ok(none);
    }
    let socket = kernel.route(Ns::Pod)?;
    for (at, index) in &ends {
        let name = &links[*at].at.name;
        socket.push(rtnl::SETLINK, 0, |out| match index {
            Some(index) => link::into_group_by_index(*index, GROUP, out),
            None => link::into_group(name, GROUP, out),
        });
    }
    socket.push(rtnl::DELLINK, 0, |out| link::by_group(GROUP, out));
    let mut outcomes: Vec<bool> = socket
        .flush()?
        .iter()
        .map(|outcome| outcome.error.is_none())
        .collect();
    let is_gone = outcomes.pop().unwrap_or_default();
    let mut gone = none;
    for ((at, _), in_group) in ends.iter().zip(outcomes) {
        gone[*at] = is_gone && in_group;
    }
    Ok(gone)
}

/// The index of a pair's end in the container, as its end on the host has it; `None` where that is
/// gone, is no pair, or has its other end elsewhere.
fn end_in_pod(kernel: &mut Kernel, host: &LinkRef) -> Result<Option<u32>, Cause> {
    let Some(fact) = kernel.link(host)?.filter(LinkFact::is_end) else {
        return Ok(None);
    };
    // Asked after the link: to show that, the kernel numbers the container's namespace.
    let pod = kernel.pod_seen_from_host()?;
    Ok(fact
        .parent
        .filter(|_| pod.is_some() && fact.parent_netns == pod))
}

fn by_name(kernel: &mut Kernel, links: &[LinkRef]) -> Vec<Result<(), Cause>> {
    links.iter().map(|at| del_by_name(kernel, at)).collect()
}

fn del_by_name(kernel: &mut Kernel, at: &LinkRef) -> Result<(), Cause> {
    let socket = kernel.route(at.ns)?;
    let mut del = |name: &IfName| {
        socket
            .call(rtnl::DELLINK, 0, |out| link::by_name(name, out))
            .map(drop)
    };
    match del(&at.name) {
        // A call that was killed may not have come to rename it.
        Err(err) if err.errno == Errno::ENODEV && at.ns == Ns::Pod => {
            Ok(del(&at.name.until_renamed())?)
        }
        deleted => Ok(deleted?),
    }
}

fn by_group(kernel: &mut Kernel, links: &[LinkRef]) -> Result<Vec<Result<(), Cause>>, Cause> {
    let Ok(notes) = Notes::leave(kernel.host(), links) else {
        return Ok(by_name(kernel, links));
    };
    let was_there =
        |note: &Option<Note>| note.as_ref().map(drop).ok_or_else(|| Errno::ENODEV.into());
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
        socket.push(rtnl::SETLINK, 0, |out| {
            link::into_group(&note.link, GROUP, out);
        });
    }
    socket.push(rtnl::DELLINK, 0, |out| link::by_group(GROUP, out));
    let is_gone = |outcome: &Outcome| {
        outcome
            .error
            .as_ref()
            .is_none_or(|err| err.errno == Errno::ENODEV)
    };
    let outcomes: Vec<bool> = socket.flush()?.iter().map(is_gone).collect();
    // Something may be in the group that the kernel does not take away.
    let Some((true, in_group)) = outcomes.split_last() else {
        return Ok(false);
    };
    for (note, _) in all.iter().zip(in_group).filter(|(_, in_group)| **in_group) {
        note.end();
    }
    Ok(notes.are_gone())
}
