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

/// Deletes links in one namespace. Returns a result for each link.
pub(crate) fn links(kernel: &mut Kernel, ns: Ns, links: &[&Link]) -> Vec<Result<(), Cause>> {
    for link in links {
        for at in link.ends() {
            kernel.forget(at);
        }
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

/// Deletes the container's links in one request. If links remain, deletes pairs by the names of
/// their ends on the host, and other links by name.
fn of_pod(kernel: &mut Kernel, links: &[&Link]) -> Vec<Result<(), Cause>> {
    let mut gone = in_pod(kernel, links).unwrap_or_default();
    gone.resize(links.len(), false);
    let mut pairs = Vec::new();
    for (at, link) in links.iter().enumerate() {
        if !gone[at]
            && let Some(host) = link.host_end()
        {
            pairs.push(host.clone());
        }
    }
    let of_pairs = if pairs.is_empty() {
        Vec::new()
    } else {
        of_host(kernel, &pairs)
    };
    let mut of_pairs = of_pairs.into_iter();
    let mut results = Vec::with_capacity(links.len());
    for (at, link) in links.iter().enumerate() {
        results.push(match link.host_end() {
            _ if gone[at] => Ok(()),
            Some(_) => of_pairs.next().unwrap_or(Ok(())),
            None => del_by_name(kernel, &link.at),
        });
    }
    results
}

/// Deletes two or more links of the container with a link group. Returns true for each deleted
/// link.
///
/// A container may put its own links into the group, since the number is public. So it can delete
/// its own links, but it can do that anyway: the kernel requires `CAP_NET_ADMIN` in the container's
/// namespace to set a link's group, and the same capability to delete a link. A group never spans
/// namespaces. If the group has a link that cannot be deleted, such as `lo`, the kernel refuses the
/// whole request. Then the links are deleted by name.
fn in_pod(kernel: &mut Kernel, links: &[&Link]) -> Result<Vec<bool>, Cause> {
    let none = vec![false; links.len()];
    if links.len() < 2 || !kernel.has_pod() {
        return Ok(none);
    }
    // Pairs are found by index, since their ends in the container may have been renamed.
    let mut ends = Vec::new();
    for (at, link) in links.iter().enumerate() {
        let Some(host) = link.host_end() else {
            ends.push((at, None));
            continue;
        };
        if let Some(index) = end_in_pod(kernel, host)? {
            ends.push((at, Some(index)));
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
    let outcomes = socket.flush()?;
    let mut gone = none;
    let Some((deletion, joins)) = outcomes.split_last() else {
        return Ok(gone);
    };
    if deletion.error.is_some() {
        return Ok(gone);
    }
    for ((at, _), join) in ends.iter().zip(joins) {
        gone[*at] = join.error.is_none();
    }
    Ok(gone)
}

/// Returns the index of a pair's end in the container, as read from the pair's end on the host.
/// Returns `None` if the host's end is gone, is not part of a pair, or has its other end in a third
/// namespace.
fn end_in_pod(kernel: &mut Kernel, host: &LinkRef) -> Result<Option<u32>, Cause> {
    let Some(fact) = kernel.link(host)?.filter(LinkFact::is_end) else {
        return Ok(None);
    };
    // This follows the read of the link, on which the kernel assigns an id to the container's
    // namespace.
    let pod = kernel.pod_seen_from_host()?;
    let is_in_pod = pod.is_some() && fact.parent_netns == pod;
    Ok(if is_in_pod { fact.parent } else { None })
}

fn by_name(kernel: &mut Kernel, links: &[LinkRef]) -> Vec<Result<(), Cause>> {
    links.iter().map(|at| del_by_name(kernel, at)).collect()
}

fn del_by_name(kernel: &mut Kernel, at: &LinkRef) -> Result<(), Cause> {
    let socket = kernel.route(at.ns)?;
    let mut del = |name: &IfName| socket.call(rtnl::DELLINK, 0, |out| link::by_name(name, out));
    match del(&at.name) {
        // A killed call may have left the link under its temporary name.
        Err(err) if err.errno == Errno::ENODEV && at.ns == Ns::Pod => {
            del(&at.name.until_renamed())?;
        }
        deleted => {
            deleted?;
        }
    }
    Ok(())
}

fn by_group(kernel: &mut Kernel, links: &[LinkRef]) -> Result<Vec<Result<(), Cause>>, Cause> {
    let Ok(notes) = Notes::leave(kernel.host(), links) else {
        return Ok(by_name(kernel, links));
    };
    let mut results = Vec::with_capacity(links.len());
    for note in &notes.own {
        results.push(match note {
            Some(_) => Ok(()),
            None => Err(Errno::ENODEV.into()),
        });
    }
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

/// Deletes the links of all queue entries in one request, then the entries. Returns true if this
/// call's links are deleted.
fn take(socket: &mut Socket, notes: &Notes) -> Result<bool, KernelError> {
    let others = notes.of_others(socket);
    let mut queued: Vec<&Note> = notes.own.iter().flatten().collect();
    queued.extend(&others);
    for note in &queued {
        socket.push(rtnl::SETLINK, 0, |out| {
            link::into_group(&note.link, GROUP, out);
        });
    }
    socket.push(rtnl::DELLINK, 0, |out| link::by_group(GROUP, out));
    let outcomes = socket.flush()?;
    let Some((deletion, joins)) = outcomes.split_last() else {
        return Ok(false);
    };
    // The group may have a link that the kernel cannot delete.
    if !is_gone(deletion) {
        return Ok(false);
    }
    for (note, join) in queued.iter().zip(joins) {
        if is_gone(join) {
            note.end();
        }
    }
    Ok(notes.are_gone())
}

/// True if the request succeeded, or the link was deleted before.
fn is_gone(outcome: &Outcome) -> bool {
    match &outcome.error {
        None => true,
        Some(err) => err.errno == Errno::ENODEV,
    }
}
