//! Garbage of all networks: what is left of containers that are gone with their namespaces.
//!
//! Unlike GC it gets no list of valid attachments. So it keeps everything of a container whose
//! namespace may exist, also of one that no runtime knows.

use super::del::recorded_call;
use super::edit::refuse_unseen_leases;
use super::leases;
use super::orphans::{records, sweep_empty};
use super::pods::claims::free_in_pools;
use super::recorded;
use super::teardown::Teardown;
use crate::apply::host::Machine;
use crate::ipam::host_local::claimed;
use crate::ipam::whereabouts;
use crate::store::holder::is_gone;
use crate::store::record::Record;
use braid_core::cni::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Number of deleted objects, and errors.
#[derive(Debug, Default)]
pub struct Collected {
    /// Attachments of containers that are gone.
    pub attachments: u64,
    /// Leases of containers that are gone, or of an earlier boot.
    pub leases: u64,
    /// Errors. Other objects were deleted.
    pub errors: Vec<Error>,
}

/// Detaches containers that are gone, and releases leases whose owners are gone.
pub fn collect(machine: &dyn Machine) -> Collected {
    let mut collected = Collected::default();
    let records = match records(machine) {
        Ok(records) => records,
        Err(err) => {
            collected.errors.push(err);
            return collected;
        }
    };
    // A folder of leases may be known from a record alone.
    let folders = leases::folders(&records, machine.root());
    for record in records.iter().filter(|record| is_gone(record)) {
        match detach(record, machine) {
            Ok(count) => collected.attachments += count,
            Err(err) => collected.errors.push(err),
        }
    }
    for folder in folders {
        match leases::take_back(&folder, machine) {
            Ok(freed) => collected.leases += u64::try_from(freed.len()).unwrap_or_default(),
            Err(err) => collected.errors.push(err),
        }
    }
    collected.errors.extend(sweep_empty(machine));
    collected
}

/// Detaches a container that is gone. Returns the number of its attachments. Meanwhile another call
/// may have detached it, or attached a new container with its id: then nothing is done.
fn detach(listed: &Record, machine: &dyn Machine) -> Result<u64, Error> {
    let id = &listed.key.owner.container_id;
    let detached = try_detach(listed, machine);
    detached.map_err(|err| err.context(format_args!("container {id}")))
}

fn try_detach(listed: &Record, machine: &dyn Machine) -> Result<u64, Error> {
    let folder = machine
        .folder(&listed.key.owner.container_id)
        .map_err(Error::from)?;
    let record = folder.load_left(&listed.key).map_err(Error::from)?;
    let Some(record) = record.filter(is_gone) else {
        return folder.close().map(|()| 0).map_err(Error::from);
    };
    let count = u64::try_from(record.attachments.len()).unwrap_or_default();
    let mut call = recorded_call(&record)?;
    // Another container's namespace may be at the path by now.
    call.attachment.netns = None;
    let wanted = recorded::wanted(Some(&record), &call)?;
    for (attached, wanted) in record.attachments.iter().zip(&wanted) {
        refuse_unseen_leases(attached, wanted)?;
    }
    let mut host = machine.open(None).map_err(Error::from)?;
    let mut taking = Teardown {
        wanted: &wanted,
        record: Some(record),
        passes_prev_result: true,
    };
    let errors = taking.run(&mut *host);
    Error::joined(&folder.settle(&call.key, taking.record.as_ref(), errors))?;
    folder.close().map_err(Error::from)?;
    Ok(count)
}

/// Claims with addresses on this node.
#[derive(Debug, Default)]
pub struct Held {
    /// Owners of leases, by lease folder.
    folders: BTreeMap<PathBuf, BTreeSet<String>>,
    /// Uids in cluster-wide pools.
    in_pools: BTreeSet<String>,
}

impl Held {
    /// True if no claim has an address.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.in_pools.is_empty()
    }
}

/// Returns the claims that hold addresses.
pub fn claims(machine: &dyn Machine) -> Result<Held, Error> {
    let mut held = Held {
        in_pools: whereabouts::claims::uids()?,
        ..Held::default()
    };
    for folder in leases::folders(&records(machine)?, machine.root()) {
        let owners = claimed::owners(&folder)?;
        if !owners.is_empty() {
            held.folders.insert(folder, owners);
        }
    }
    Ok(held)
}

/// Releases the addresses of the claims in `held` whose uids are not in `uids`, which were listed
/// after `held`. Returns the number of addresses.
pub fn release(held: &Held, uids: &BTreeSet<String>, machine: &dyn Machine) -> Result<u64, Error> {
    let (mut count, mut errors) = (0, Vec::new());
    match free_in_pools(&held.in_pools, uids, machine) {
        Ok(freed) => count += freed,
        Err(err) => errors.push(err),
    }
    for (folder, owners) in &held.folders {
        let node = leases::node_state(folder, machine);
        match claimed::free(folder, owners, uids, node.host()) {
            Ok(freed) => count += freed.len(),
            Err(err) => errors.push(err),
        }
    }
    Error::joined(&errors)?;
    Ok(u64::try_from(count).unwrap_or_default())
}
