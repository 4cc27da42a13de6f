//! DEL: applies the inverses of the recorded steps, newest first. Without a record, the deletion is
//! planned from names alone.

use super::chain::{self, BRAID, Chain};
use super::invocation::{DelRequest, Detached, Wanted, refuse_own};
use super::liveness::NodeState;
use super::recorded;
use super::teardown::Teardown;
use super::unrecorded::{Extent, forget};
use crate::apply::host::{Host, Machine};
use crate::store::record::{Folder, Key, Record};
use crate::sys::netns::{NetNs, NetNsError};
use braid_core::cni::{Attachment, Error, Json, NetConf, Request};
use braid_core::name::Ns;
use braid_core::plan::step::Step;
use braid_core::plan::thing::Thing;
use braid_core::plan::undo::undo;

/// Detaches the container. Missing objects count as detached.
///
/// Uses the recorded configuration, because it names the IPAM that assigned the address. Without a
/// record, uses the configuration of the call, as far as it can be read.
#[inline(never)]
pub fn del(request: Request, plugin_name: &str, machine: &dyn Machine) -> Result<(), Error> {
    let Request {
        attachment,
        path,
        netns_override,
        conf,
        ..
    } = request;
    let attachment = attachment.ok_or_else(|| Error::env("DEL needs a container"))?;
    if let Some(ipam) = chain::ipam_alone_for_release(plugin_name, &conf)? {
        let known = NodeState::of(machine.root(), &conf.name, machine.log());
        return ipam
            .release(&attachment.owner(&conf.name), known.host_of(&attachment))
            .map(drop);
    }
    let key = Chain::key_of(plugin_name, &conf, &attachment);
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
    /// The attachments to delete.
    pub wanted: Vec<Wanted>,
    /// A record of these attachments. It is stored if the deletion fails.
    pub record: Option<Record>,
    /// Attachments that an unreadable record may have named; `None` without such a record.
    pub more: Option<Extent>,
}

/// Detaches the container from all networks in the call's record. Without a record, detaches it
/// only from the network in the call's configuration.
pub fn detach(call: &DelRequest, machine: &dyn Machine) -> Result<(), Error> {
    let detached = detach_or(call, machine, &|folder, _| {
        let wanted = recorded::wanted(None, call)?;
        let has_file = folder.has_file(&call.key);
        Ok(Unrecorded {
            wanted,
            record: None,
            more: has_file.then(|| Extent::Attachments(vec![call.key.owner.clone()])),
        })
    });
    detached.map(drop)
}

/// Detaches the container from all networks in the call's record, and returns the interfaces that
/// it had. Without a record, detaches it from the networks that `find` returns.
pub fn detach_or(
    call: &DelRequest,
    machine: &dyn Machine,
    find: &dyn Fn(&Folder, &mut dyn Host) -> Result<Unrecorded, Error>,
) -> Result<Vec<Detached>, Error> {
    let mut host = machine
        .open(netns_of(&call.attachment)?)
        .map_err(Error::from)?;
    let is_own = !call.netns_override && host.own_netns().map_err(Error::from)?.is_some();
    let folder = machine
        .folder(&call.key.owner.container_id)
        .map_err(Error::from)?;
    let record = folder.load_left(&call.key).map_err(Error::from)?;
    if !host.has_pod()
        && let Some(record) = &record
        && let Some(netns) = netns_of_moved(record, call)
    {
        host = machine.open(Some(netns)).map_err(Error::from)?;
    }
    let is_recorded = record.is_some();
    let Unrecorded {
        mut wanted,
        record,
        more,
    } = match record {
        Some(record) => {
            let wanted = recorded::wanted(Some(&record), call)?;
            let is_damaged = record.is_second() && folder.file(&call.key).exists();
            Unrecorded {
                wanted,
                more: is_damaged.then(|| Extent::Attachments(record.owners().collect())),
                record: Some(record),
            }
        }
        None if is_own => return refuse_own(&*host).map(|()| Vec::new()),
        None => find(&folder, &mut *host)?,
    };
    // ADD would have refused braid's own namespace. So the container's namespace is gone, and
    // another namespace is at its path.
    if let Some(record) = &record
        && (is_own || is_others(record, &wanted, &mut *host))
    {
        host.leave_pod();
        for wanted in &mut wanted {
            wanted.attachment.netns = None;
        }
    }
    let detached = record
        .as_ref()
        .map(recorded::interfaces)
        .unwrap_or_default();
    let mut taking = Teardown {
        wanted: &wanted,
        record,
        passes_prev_result: true,
    };
    let mut errors = taking.run(&mut *host);
    // An unreadable record may have named more networks. It stays until all of them are detached.
    if let Some(extent) = more {
        errors.extend(forget(&call.key, extent, &folder, machine));
    }
    Error::joined(&folder.settle(&call.key, taking.record.as_ref(), errors))?;
    if is_recorded {
        folder.close().map_err(Error::from)?;
    } else {
        detach_names(folder, &call.key, machine)?;
    }
    Ok(detached)
}

/// Runs DEL for records of the same network and interface under another plugin type. Such records
/// exist if the configuration has changed since ADD: from a single plugin to a list of type
/// `braid`, or from a list to single plugins. In the second case, DEL is called for each single
/// plugin. Only DEL of the list's first plugin uses the record of the list, because that plugin
/// created the interface.
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
    Error::joined(&collect_all(&others, machine))
}

/// Rolls back an earlier ADD by its record, for an ADD that starts again. Uses the recorded
/// plugins, as the new ADD may have others, and the network namespace of `attachment`.
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
        passes_prev_result: false,
    };
    let errors = taking.run(host);
    Error::joined(&folder.settle(&key, taking.record.as_ref(), errors))
}

/// True if the namespace at the container's path is not the recorded namespace. Entering the
/// namespace for this check takes as long as deleting a veth. So the namespace is entered only if
/// DEL would change something in it or call a foreign plugin.
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

/// Opens the recorded namespace if the runtime passes none and a link may have to be moved back
/// from that namespace to the host.
fn netns_of_moved(record: &Record, call: &DelRequest) -> Option<NetNs> {
    let has_moved = || {
        record
            .steps()
            .any(|step| matches!(step, Step::Add(Thing::Moved(_))))
    };
    let path = record.netns.as_deref()?;
    if call.attachment.netns.is_none() && (record.is_second() || has_moved()) {
        return NetNs::open(path).ok();
    }
    None
}

/// Opens the container's namespace; `None` if it is gone or the runtime passes none.
pub(super) fn netns_of(attachment: &Attachment) -> Result<Option<NetNs>, Error> {
    let Some(path) = &attachment.netns else {
        return Ok(None);
    };
    match NetNs::open(path) {
        Ok(netns) => Ok(Some(netns)),
        Err(NetNsError::Gone(_)) => Ok(None),
        Err(err) => Err(crate::Error::from(err).into()),
    }
}

/// [`collect`] for several records. Returns all errors.
pub(super) fn collect_all(records: &[Record], machine: &dyn Machine) -> Vec<Error> {
    let mut errors = Vec::new();
    for record in records {
        errors.extend(collect(record, machine).err());
    }
    errors
}

/// Runs DEL for a record, with the recorded arguments of its call.
pub fn collect(record: &Record, machine: &dyn Machine) -> Result<(), Error> {
    let detached = match recorded_call(record) {
        Ok(call) => detach(&call, machine),
        Err(err) => Err(err),
    };
    detached.map_err(|err| {
        err.context(format!(
            "container {} {}",
            record.key.owner.container_id, record.key.owner.ifname
        ))
    })
}

/// Converts a record to a DEL call.
pub(super) fn recorded_call(record: &Record) -> Result<DelRequest, Error> {
    let first = record
        .attachments
        .first()
        .ok_or_else(|| Error::internal("the record has no attachment"))?;
    let conf = NetConf::from_json(Json::clone(&first.conf))?;
    let (key, path) = (record.key.clone(), record.path.clone());
    Ok(DelRequest {
        key,
        attachment: record.interface_of(first),
        conf,
        path,
        netns_override: false,
    })
}
