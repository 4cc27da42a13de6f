//! DEL: the inverses of the record, newest first; from names alone where no record is left.

use super::chain::{self, BRAID, Chain};
use super::invocation::{DelRequest, Wanted, refuse_own};
use super::liveness::NodeState;
use super::recorded;
use super::teardown::Teardown;
use super::unrecorded::forget;
use crate::apply::host::{Host, Machine};
use crate::store::record::{Attached, Folder, Key, Record};
use crate::sys::netns::{NetNs, NetNsError};
use braid_core::cni::{Attachment, Error, Json, NetConf, Request};
use braid_core::name::Ns;
use braid_core::plan::step::Step;
use braid_core::plan::thing::Thing;
use braid_core::plan::undo::undo;

/// Detaches the container. What is not there is already detached.
///
/// The configuration is the one that the record remembers, which knows who gave the address;
/// without a record the call's, as far as it can be read.
#[inline(never)]
pub fn del(request: Request, face: &str, machine: &dyn Machine) -> Result<(), Error> {
    let Request {
        attachment,
        path,
        netns_override,
        conf,
        ..
    } = request;
    let attachment = attachment.ok_or_else(|| Error::env("DEL needs a container"))?;
    if let Some(ipam) = chain::ipam_alone_for_release(face, &conf)? {
        let known = NodeState::of(machine.root(), &conf.name, machine.log());
        return ipam
            .release(&attachment.owner(&conf.name), known.host_of(&attachment))
            .map(drop);
    }
    let key = Chain::key_of(face, &conf, &attachment);
    detach(
        &DelRequest {
            key,
            attachment,
            conf,
            path,
            netns_override,
        },
        machine,
    )
}

/// Attachments of a call without a record, found by other means.
#[derive(Debug)]
pub struct Unrecorded {
    /// The attachments.
    pub wanted: Vec<Wanted>,
    /// A record of them, to be kept if taking them back fails.
    pub record: Option<Record>,
    /// More of the container may be left, in any network.
    pub is_more: bool,
}

/// Detaches all networks of a call; that of its own configuration if it has no record.
pub fn detach(call: &DelRequest, machine: &dyn Machine) -> Result<(), Error> {
    detach_or(call, machine, &|folder, _| {
        let wanted = recorded::wanted(None, call)?;
        Ok(Unrecorded {
            wanted,
            record: None,
            is_more: folder.has_file(&call.key),
        })
    })
}

/// Detaches all networks of a call; `find` finds them if it has no record.
pub fn detach_or(
    call: &DelRequest,
    machine: &dyn Machine,
    find: &dyn Fn(&Folder, &mut dyn Host) -> Result<Unrecorded, Error>,
) -> Result<(), Error> {
    let mut host = machine
        .open(netns_of(&call.attachment)?)
        .map_err(Error::from)?;
    let is_own = !call.netns_override && host.own_netns().map_err(Error::from)?.is_some();
    let folder = machine
        .folder(&call.key.owner.container_id)
        .map_err(Error::from)?;
    let record = folder.load_left(&call.key).map_err(Error::from)?;
    if let Some(netns) = record
        .as_ref()
        .filter(|_| !host.has_pod())
        .and_then(|record| netns_of_moved(record, call))
    {
        host = machine.open(Some(netns)).map_err(Error::from)?;
    }
    let is_recorded = record.is_some();
    let Unrecorded {
        mut wanted,
        record,
        is_more,
    } = match record {
        Some(record) => {
            let wanted = recorded::wanted(Some(&record), call)?;
            let is_more = record.is_second() && folder.file(&call.key).exists();
            Unrecorded {
                wanted,
                record: Some(record),
                is_more,
            }
        }
        None if is_own => return refuse_own(&*host),
        None => find(&folder, &mut *host)?,
    };
    // ADD would have refused the own one: the container's is gone, and the path leads elsewhere.
    if let Some(record) = &record
        && (is_own || is_others(record, &wanted, &mut *host))
    {
        host.leave_pod();
        for wanted in &mut wanted {
            wanted.attachment.netns = None;
        }
    }
    let mut taking = Teardown {
        wanted: &wanted,
        record,
        is_reconstructible: true,
    };
    let mut errors = taking.run(&mut *host);
    // A record that can't be read would have named more networks. It stays until all of them are
    // left.
    if is_more {
        errors.extend(forget(&call.key, &folder, machine));
    }
    Error::joined(&folder.settle(&call.key, taking.record.as_ref(), errors))?;
    if is_recorded {
        folder.close().map_err(Error::from)
    } else {
        detach_names(folder, &call.key, machine)
    }
}

/// Detaches what the network has of the interface by other records: its configuration has become a
/// list of type `braid` since, or is no such list any more. Then the plugin that makes the
/// interface ends the record of the list.
#[cold]
pub fn detach_names(folder: Folder, key: &Key, machine: &dyn Machine) -> Result<(), Error> {
    let makes_interface = |chain: &Chain| {
        chain
            .items
            .first()
            .is_some_and(|item| item.conf.plugin == key.plugin)
    };
    let is_list = |record: &Record| {
        record.key.plugin == BRAID
            && recorded::chains(record).any(|(_, chain)| makes_interface(&chain))
    };
    let mut others = folder.others(key).map_err(Error::from)?;
    others.retain(|record| key.plugin == BRAID || is_list(record));
    folder.close().map_err(Error::from)?;
    let errors: Vec<Error> = others
        .iter()
        .filter_map(|record| collect(record, machine).err())
        .collect();
    Error::joined(&errors)
}

/// Takes back what a record describes, for an ADD that begins again in a namespace, perhaps with
/// other chains.
#[cold]
pub fn take_back(
    record: Record,
    attachment: &Attachment,
    folder: &Folder,
    host: &mut dyn Host,
) -> Result<(), Error> {
    let mut wanted = Vec::new();
    for (attached, chain) in recorded::chains(&record) {
        let netns = attachment.netns.clone();
        let attachment = Attachment {
            netns,
            ..record.interface_of(attached)
        };
        wanted.push(recorded::as_wanted(attached, attachment, chain));
    }
    let key = record.key.clone();
    let mut taking = Teardown {
        wanted: &wanted,
        record: Some(record),
        is_reconstructible: false,
    };
    let errors = taking.run(host);
    Error::joined(&folder.settle(&key, taking.record.as_ref(), errors))
}

/// True if the path leads to another namespace than the recorded one. Asked only where something
/// would be done there: to enter it takes as long as to delete a veth.
fn is_others(record: &Record, wanted: &[Wanted], host: &mut dyn Host) -> bool {
    let enters = || {
        undo(&record.steps().cloned().collect::<Vec<_>>())
            .iter()
            .any(|step| step.ns() == Ns::Pod)
    };
    let has_foreign = || wanted.iter().any(|wanted| wanted.chain.has_foreign());
    host.has_pod()
        && (record.is_of_earlier_boot()
            || (has_foreign() || enters()) && !record.is_of(host.pod_cookie()))
}

/// The recorded namespace, where the runtime names none and the host is to get a link back from
/// there, or may be.
fn netns_of_moved(record: &Record, call: &DelRequest) -> Option<NetNs> {
    let has_moved = || {
        record
            .steps()
            .any(|step| matches!(step, Step::Add(Thing::Moved(_))))
    };
    let path = record
        .netns
        .as_deref()
        .filter(|_| call.attachment.netns.is_none() && (record.is_second() || has_moved()))?;
    NetNs::open(path).ok()
}

/// The container's namespace; `None` where it is gone.
pub(super) fn netns_of(attachment: &Attachment) -> Result<Option<NetNs>, Error> {
    match attachment.netns.as_deref().map(NetNs::open) {
        None | Some(Err(NetNsError::Gone(_))) => Ok(None),
        Some(Ok(netns)) => Ok(Some(netns)),
        Some(Err(err)) => Err(crate::Error::from(err).into()),
    }
}

/// DEL with what the record remembers of the call.
pub fn collect(record: &Record, machine: &dyn Machine) -> Result<(), Error> {
    let call = || {
        let lost = || Error::internal("the record has no attachment");
        let first: &Attached = record.attachments.first().ok_or_else(lost)?;
        let conf = NetConf::from_json(Json::clone(&first.conf))?;
        let (key, path) = (record.key.clone(), record.path.clone());
        Ok(DelRequest {
            key,
            attachment: record.interface_of(first),
            conf,
            path,
            netns_override: false,
        })
    };
    call()
        .and_then(|call| detach(&call, machine))
        .map_err(|err: Error| {
            err.context(format!(
                "container {} {}",
                record.key.owner.container_id, record.key.owner.ifname
            ))
        })
}
