//! DEL: the inverses of the record, newest first; from names alone where no record is left.

use super::add::refuse_own;
use super::chain::{self, Chain, From, Work};
use super::joined;
use super::liveness::Known;
use super::planner::call;
use super::recorded;
use crate::apply::executor::{OnError, execute};
use crate::apply::kernel::Kernel;
use crate::apply::record::{Folder, Record};
use crate::apply::shape;
use crate::cni::{AddResult, Attachment, Command, Error, Request};
use crate::plan::Facts;
use crate::plan::step::{Ns, Step};
use crate::plan::undo::undo;
use crate::sys::netns::{NetNs, NetNsError};

/// Detaches the container. What is not there is already detached.
///
/// The configuration is the one that the record remembers, which knows who gave the address; without a record the call's, as
/// far as it can be read.
pub fn del(request: &Request, face: &str) -> Result<(), Error> {
    let attachment = request.attachment.as_ref().ok_or_else(|| Error::env("DEL needs a container"))?;
    if let Some(ipam) = chain::ipam_alone_for_release(face, &request.conf)? {
        return ipam.release(&chain::owner(attachment), Known::of(&request.conf.name).host()).map(drop);
    }
    let mut kernel = Kernel::open(netns_of(attachment)?).map_err(internal)?;
    let is_own = !request.netns_override && kernel.own_netns().map_err(internal)?.is_some();
    let folder = Folder::lock(&attachment.container_id).map_err(internal)?;
    let key = Chain::key_of(face, &request.conf, attachment);
    let record = folder.load(&key).map_err(internal)?;
    let chain = recorded::chain_of(record.as_ref(), face, request)?;
    let attachment = match &record {
        // ADD would have refused the own one: the container's is gone, and the path leads elsewhere.
        Some(record) if is_own || is_others(record, &chain, &mut kernel) => {
            kernel.leave_pod();
            &Attachment { netns: None, ..attachment.clone() }
        }
        None if is_own => return refuse_own(&kernel),
        _ => attachment,
    };
    let prev = request.conf.prev_result.as_ref();
    take_back_all(&chain, attachment, record.as_ref(), prev, &mut kernel)?;
    folder.remove(&key).and_then(|()| folder.close()).map_err(internal)
}

/// Takes back what a record describes, for an ADD that begins again, perhaps with another `chain`.
pub fn take_back(
    record: &Record,
    chain: &Chain,
    attachment: &Attachment,
    folder: &Folder,
    kernel: &mut Kernel,
) -> Result<(), Error> {
    let recorded = recorded::chain(record);
    let chain = recorded.as_ref().unwrap_or(chain);
    take_back_all(chain, attachment, Some(record), None, kernel)?;
    folder.remove(&record.key).map_err(internal)
}

/// Whether the path leads to another namespace than the recorded one. Asked where something would be done there: to enter
/// it takes as long as to delete a veth.
fn is_others(record: &Record, chain: &Chain, kernel: &mut Kernel) -> bool {
    let enters = || undo(&record.steps().cloned().collect::<Vec<_>>()).iter().any(|step| step.ns() == Ns::Pod);
    kernel.has_pod() && (chain.has_foreign() || enters()) && !record.is_of(kernel.pod_cookie())
}

/// The container's namespace; `None` where it is gone.
fn netns_of(attachment: &Attachment) -> Result<Option<NetNs>, Error> {
    match attachment.netns.as_deref().map(NetNs::open) {
        None | Some(Err(NetNsError::Gone(_))) => Ok(None),
        Some(Ok(netns)) => Ok(Some(netns)),
        Some(Err(err)) => Err(internal(err)),
    }
}

fn internal(err: impl std::fmt::Display) -> Error {
    Error::internal(err.to_string())
}

/// Goes through the chain backwards; neighbouring native plugins are undone together. All errors are collected.
fn take_back_all(
    chain: &Chain,
    attachment: &Attachment,
    record: Option<&Record>,
    prev: Option<&AddResult>,
    kernel: &mut Kernel,
) -> Result<(), Error> {
    let mut errors = Vec::new();
    let mut end = chain.items.len();
    while end > 0 {
        let is_foreign = |at: usize| matches!(chain.items[at].work, Work::Foreign);
        let mut start = end - 1;
        while !is_foreign(end - 1) && start > 0 && !is_foreign(start - 1) {
            start -= 1;
        }
        if !is_foreign(start) {
            let steps = undo_steps(chain, attachment, record, prev, start, end);
            let report = execute(kernel, &steps, &Facts::default(), OnError::GoOn);
            errors.extend(report.errors.into_iter().map(internal));
        }
        // An address is given back only when no link carries it any more.
        if errors.is_empty() {
            let was_begun = |at: usize| record.is_some_and(|record| at < record.parts.len());
            let ended = |at| give_back(chain, at, attachment, prev, was_begun(at)).err();
            errors.extend((start..end).rev().filter_map(ended));
        }
        end = start;
    }
    if !kernel.has_pod() {
        let all = record.into_iter().flat_map(Record::steps);
        let shaped = all.filter_map(|step| if let Step::AddShaping(shaping) = step { Some(shaping) } else { None });
        errors.extend(shaped.filter_map(|shaping| shape::leave(shaping).err()).map(internal));
    }
    joined(errors)
}

/// What undoes the native plugins `start..end`: inverses of the record, or what their names say.
fn undo_steps(
    chain: &Chain,
    attachment: &Attachment,
    record: Option<&Record>,
    prev: Option<&AddResult>,
    start: usize,
    end: usize,
) -> Vec<Step> {
    match record {
        Some(record) if chain.has_foreign() => {
            // The runtime may have offered at ADD what made the chain longer.
            let end = if end == chain.items.len() { record.parts.len().max(end) } else { end };
            undo(&record.parts.iter().skip(start).take(end - start).flatten().cloned().collect::<Vec<_>>())
        }
        Some(record) => undo(&record.steps().cloned().collect::<Vec<_>>()),
        None => {
            let call = call(chain, attachment, "", prev);
            let plugins = chain.items[start..end].iter().rev().filter_map(|item| match &item.work {
                Work::Native(plugin) => Some(plugin),
                _ => None,
            });
            plugins.flat_map(|plugin| plugin.remnants(&call)).collect()
        }
    }
}

/// Gives back what item `at` got from others: its addresses, or all that a foreign plugin made. One that would start this
/// program again has made nothing, unless an ADD had `begun` with it: it was another file then.
pub fn give_back(
    chain: &Chain,
    at: usize,
    attachment: &Attachment,
    prev: Option<&AddResult>,
    begun: bool,
) -> Result<(), Error> {
    let Some(item) = chain.items.get(at) else { return Ok(()) };
    let foreign = match (&item.work, &item.addresses) {
        (Work::Foreign, _) => &item.conf.plugin,
        (_, From::Foreign(ipam)) => ipam,
        (_, From::Nobody) => return Ok(()),
        (_, From::Ours(ipam)) => {
            let known = Known::of(chain.network());
            return ipam.release(&chain::owner(attachment), known.host()).map(drop);
        }
    };
    if !begun && let Some(circle) = chain.circle(foreign, attachment) {
        eprintln!("network {:?}: nothing to take back: {circle}", chain.network());
        return Ok(());
    }
    chain.delegate(foreign, at, Command::Del, Some(attachment), prev).map(drop)
}
