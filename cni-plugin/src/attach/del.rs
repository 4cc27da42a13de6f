//! DEL: the inverses of the record, newest first; from names alone where no record is left.

use super::add::refuse_own;
use super::chain::{self, Chain};
use super::liveness::Known;
use super::recorded;
use super::take_back::TakeBack;
use crate::apply;
use crate::apply::host::{Host, Machine};
use crate::apply::record::{Folder, Record};
use crate::cni::{Attachment, Error, Request};
use crate::plan::step::Ns;
use crate::plan::undo::undo;
use crate::sys::netns::{NetNs, NetNsError};

/// Detaches the container. What is not there is already detached.
///
/// The configuration is the one that the record remembers, which knows who gave the address; without a record the call's, as
/// far as it can be read.
#[inline(never)]
pub fn del(request: &Request, face: &str, machine: &dyn Machine) -> Result<(), Error> {
    let attachment = request.attachment.as_ref().ok_or_else(|| Error::env("DEL needs a container"))?;
    if let Some(ipam) = chain::ipam_alone_for_release(face, &request.conf)? {
        let network = &request.conf.name;
        return ipam.release(&attachment.owner(network), Known::of(network).host()).map(drop);
    }
    let mut host = machine.open(netns_of(attachment)?).map_err(Error::from)?;
    let is_own = !request.netns_override && host.own_netns().map_err(Error::from)?.is_some();
    let folder = machine.folder(&attachment.container_id).map_err(Error::from)?;
    let key = Chain::key_of(face, &request.conf, attachment);
    let record = folder.load(&key).map_err(Error::from)?;
    let chain = recorded::chain_of(record.as_ref(), face, request)?;
    let attachment = match &record {
        // ADD would have refused the own one: the container's is gone, and the path leads elsewhere.
        Some(record) if is_own || is_others(record, &chain, &mut *host) => {
            host.leave_pod();
            &Attachment { netns: None, ..attachment.clone() }
        }
        None if is_own => return refuse_own(&*host),
        _ => attachment,
    };
    let mut taking = TakeBack { chain: &chain, attachment, record, prev: request.conf.prev_result.as_ref() };
    let errors = taking.run(&mut *host);
    Error::joined(&folder.settle(&key, taking.record.as_ref(), errors))?;
    folder.close().map_err(Error::from)
}

/// Takes back what a record describes, for an ADD that begins again, perhaps with another `chain`.
#[cold]
pub fn take_back(
    record: Record,
    chain: &Chain,
    attachment: &Attachment,
    folder: &Folder,
    host: &mut dyn Host,
) -> Result<(), Error> {
    let (recorded, key) = (recorded::chain(&record), record.key.clone());
    let chain = recorded.as_ref().unwrap_or(chain);
    let mut taking = TakeBack { chain, attachment, record: Some(record), prev: None };
    let errors = taking.run(host);
    Error::joined(&folder.settle(&key, taking.record.as_ref(), errors))
}

/// Whether the path leads to another namespace than the recorded one. Asked where something would be done there: to enter
/// it takes as long as to delete a veth.
fn is_others(record: &Record, chain: &Chain, host: &mut dyn Host) -> bool {
    let enters = || undo(&record.steps().cloned().collect::<Vec<_>>()).iter().any(|step| step.ns() == Ns::Pod);
    host.has_pod() && (chain.has_foreign() || enters()) && !record.is_of(host.pod_cookie())
}

/// The container's namespace; `None` where it is gone.
fn netns_of(attachment: &Attachment) -> Result<Option<NetNs>, Error> {
    match attachment.netns.as_deref().map(NetNs::open) {
        None | Some(Err(NetNsError::Gone(_))) => Ok(None),
        Some(Ok(netns)) => Ok(Some(netns)),
        Some(Err(err)) => Err(apply::Error::from(err).into()),
    }
}
