//! Deletion of links, many in one request.
//!
//! To unregister links, the kernel holds its lock on all networks through several RCU grace
//! periods, regardless of the number of links. On a busy node, each wait for that lock is long. So
//! a call queues the links that it is about to delete, and waits for its turn. The call whose turn
//! it is puts all queued links into a group and deletes the group. The other calls then find their
//! links deleted, and never take the kernel's lock.
//!
//! A request covers the links of one namespace, but also deletes the other ends of pairs. So the
//! plan may name a pair by its end in the container, to delete it with other links there
//! (`plan/undo.rs`).

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

/// Group of the links to delete. Only its number keeps it apart from other programs' groups (`ip
/// link show group 11641296`).
const GROUP: u32 = 0x00b1_a1d0;

/// Deletes links in one namespace. Returns a result for each.
pub(crate) fn links(kernel: &mut Kernel, ns: Ns, links: &[&Link]) -> Vec<Result<(), Cause>> {
    for at in links.iter().flat_map(|link| link.ends()) {
        kernel.forget(at);
    }
    match ns {
        Ns::Host => of_host(
            kernel,
            &links.iter().map(|link| link.at.clone()).collect::<Vec<_>>(),
        ),
        // No other call deletes links in the container's namespace.
        Ns::Pod => of_pod(kernel, links),
    }
}

fn of_host(kernel: &mut Kernel, links: &[LinkRef]) -> Vec<Result<(), Cause>> {
    by_group(kernel, links).unwrap_or_else(|err| vec![Err(err); links.len()])
}

/// Deletes the container's links in one request. Links that are left are deleted by name, pairs by
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
    let delete_rest = |(at, link): (usize, &&Link)| match link.host_end() {
        _ if is_gone(at) => Ok(()),
        Some(_) => of_pairs.next().unwrap_or(Ok(())),
        None => del_by_name(kernel, &link.at),
    };
    links.iter().enumerate().map(delete_rest).collect()
}

/// Deletes two or more links of the container by a group. Returns which of them are deleted.
///
/// A container may put its own links into the group, since the number is public. That lets it
/// delete only links that it can delete anyway: the kernel requires `CAP_NET_ADMIN` there for both,
/// and a group never spans namespaces. If the group has a link that cannot be deleted, such as
/// `lo`, the kernel refuses the whole request, and the links are deleted by name.
fn in_pod(kernel: &mut Kernel, links: &[&Link]) -> Result<Vec<bool>, Cause> {
    let none = vec![false; links.len()];
    if links.len() < 2 || !kernel.has_pod() {
        return Ok(none);
    }
    // Pairs are found by index, since their ends in the container may have been renamed.
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

/// Returns the index of a pair's end in the container, as seen from its end on the host. `None` if
/// the host's end is gone, is not part of a pair, or has its other end elsewhere.
fn end_in_pod(kernel: &mut Kernel, host: &LinkRef) -> Result<Option<u32>, Cause> {
    let Some(fact) = kernel.link(host)?.filter(LinkFact::is_end) else {
        return Ok(None);
    };
    // This follows the read of the link, on which the kernel assigns an id to the container's
    // namespace.
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
        // A killed call may have left the link under its temporary name.
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
        // This may be the second try of a call that was killed before it deleted its entry.
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

/// Deletes the links of all entries in one request, and the entries. Returns true if this call's
/// links are deleted.
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
    // The group may have a link that the kernel cannot delete.
    let Some((true, in_group)) = outcomes.split_last() else {
        return Ok(false);
    };
    for (note, _) in all.iter().zip(in_group).filter(|(_, in_group)| **in_group) {
        note.end();
    }
    Ok(notes.are_gone())
}
