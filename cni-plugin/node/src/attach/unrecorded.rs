//! Deletion of the objects of a container with an unreadable record, in any network.
//!
//! The record would have named the networks. Instead, the objects are found by their owner: the
//! kernel shows the owner of each link and rule, and each lease and each journal of a pool names its
//! owners.

use super::leases::{folders, network_of};
use super::liveness::NodeState;
use super::orphans::{self, sweep};
use crate::apply::host::{Host, Machine};
use crate::ipam::liveness::owner_of;
use crate::ipam::{host_local, whereabouts};
use crate::store::record::{self, Folder, Key, Record};
use braid_core::cni::{Error, Owner};

/// Deletes all objects of the call's container that are in no readable record, in all networks.
/// Returns all errors.
#[cold]
pub(super) fn forget(key: &Key, folder: &Folder, machine: &dyn Machine) -> Vec<Error> {
    match folder.records() {
        Ok(mut records) => {
            records.retain(|record| record.key != *key);
            Unowned::of(&key.owner.container_id, &records).forget(machine)
        }
        Err(err) => vec![err.into()],
    }
}

/// Objects of a container that are in no record.
pub(super) struct Unowned<'a> {
    container_id: &'a str,
    recorded: Vec<Owner>,
}

impl<'a> Unowned<'a> {
    /// Selects the container's objects that are in none of `records`. `records` are the container's
    /// readable records.
    pub(super) fn of(container_id: &'a str, records: &[Record]) -> Self {
        Self {
            container_id,
            recorded: records.iter().flat_map(Record::owners).collect(),
        }
    }

    fn has(&self, owner: &Owner) -> bool {
        owner.container_id == self.container_id && !self.recorded.contains(owner)
    }

    fn has_text(&self, text: &str) -> bool {
        Owner::parse(text).is_some_and(|owner| self.has(&owner))
    }

    /// True if the node has a link, a rule, a lease or a cluster-wide address of the container that is in
    /// no record.
    pub(super) fn is_any(&self, host: &mut dyn Host, machine: &dyn Machine) -> Result<bool, Error> {
        if !host
            .owned(&|text| self.has_text(text))
            .map_err(Error::from)?
            .is_empty()
        {
            return Ok(true);
        }
        if whereabouts::owners()?.iter().any(|owner| self.has(owner)) {
            return Ok(true);
        }
        let all = orphans::records(machine)?;
        Ok(folders(&all, machine.root()).iter().any(|folder| {
            let network = network_of(folder);
            let leases = host_local::read_leases(folder).unwrap_or_default();
            leases
                .iter()
                .any(|lease| owner_of(lease, &network).is_some_and(|owner| self.has(&owner)))
        }))
    }

    /// Deletes the container's links and rules that are in no record, and then releases its leases and
    /// its cluster-wide addresses. Returns all errors.
    fn forget(&self, machine: &dyn Machine) -> Vec<Error> {
        let records = match orphans::records(machine) {
            Ok(records) => records,
            Err(err) => return vec![err],
        };
        let mut errors = match machine.open(None) {
            Ok(mut host) => sweep(&|text| self.has_text(text), &mut *host),
            Err(err) => vec![err.into()],
        };
        // An address is released after its link is deleted.
        for folder in folders(&records, machine.root()) {
            let network = network_of(&folder);
            let known = NodeState::of(machine.root(), &network, machine.log());
            let is_its =
                |lease: &_| owner_of(lease, &network).is_some_and(|owner| self.has(&owner));
            errors.extend(host_local::free(&folder, is_its, known.host()).err());
        }
        let node = NodeState::of(machine.root(), "", machine.log());
        errors.extend(whereabouts::free(&|owner| self.has(owner), node.host()).err());
        errors
    }
}

/// Deletes the unrecorded objects of each container that is not in `listed` and has an unreadable
/// record for this network and plugin. Returns all errors.
pub(super) fn forget_unlisted(
    network: &str,
    plugin: &str,
    listed: &[Owner],
    machine: &dyn Machine,
) -> Vec<Error> {
    let mut damaged = Vec::new();
    for folder in [record::ROOT, record::foreign::ROOT] {
        match record::damaged_in(&machine.root().at(folder)) {
            Ok(found) => damaged.extend(found),
            Err(err) => return vec![err.into()],
        }
    }
    let is_listed = |container_id: &str| {
        listed
            .iter()
            .any(|owner| owner.container_id == container_id)
    };
    let mut errors = Vec::new();
    for damaged in damaged {
        if !damaged.is_of(network, plugin) || is_listed(&damaged.container_id) {
            continue;
        }
        let folder = match machine.folder(&damaged.container_id) {
            Ok(folder) => folder,
            Err(err) => {
                errors.push(err.into());
                continue;
            }
        };
        // Another call may have attached or detached the container in the meantime.
        if !damaged.is_there() {
            continue;
        }
        let failed = match folder.records() {
            Ok(records) => Unowned::of(&damaged.container_id, &records).forget(machine),
            Err(err) => vec![err.into()],
        };
        if failed.is_empty() {
            errors.extend(damaged.remove().err().map(Error::from));
        }
        errors.extend(failed);
        errors.extend(folder.close().err().map(Error::from));
    }
    errors
}
