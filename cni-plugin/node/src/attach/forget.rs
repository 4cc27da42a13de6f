//! Containers of which a record can't be read: what they have in any network, found by names and owners.
//!
//! The record would have named the networks. The kernel shows the owner of each link and rule, and a lease names its own.

use super::gc::sweep;
use super::leases::{folders, network_of};
use super::liveness::Known;
use crate::apply::host::Machine;
use crate::ipam::host_local;
use crate::ipam::liveness::owner_of;
use crate::store::record::{self, Record};
use braid_core::cni::{Error, Owner};

/// Takes back all that a container has of which no readable record is left, in each network; all errors.
#[cold]
pub(super) fn forget(container_id: &str, machine: &dyn Machine) -> Vec<Error> {
    let records = match machine.records() {
        Ok(records) => records,
        Err(err) => return vec![err.into()],
    };
    let recorded: Vec<Owner> = records.iter().flat_map(Record::owners).collect();
    let is_lost = |owner: &Owner| owner.container_id == container_id && !recorded.contains(owner);
    let is_lost_text = |text: &str| Owner::parse(text).is_some_and(|owner| is_lost(&owner));
    let mut errors = match machine.open(None) {
        Ok(mut host) => sweep(&is_lost_text, &mut *host),
        Err(err) => vec![err.into()],
    };
    // An address is free after its link is gone.
    for folder in folders(&records, machine.root()) {
        let network = network_of(&folder);
        let known = Known::of(machine.root(), &network);
        let is_its = |lease: &_| owner_of(lease, &network).is_some_and(|owner| is_lost(&owner));
        errors.extend(host_local::free(&folder, is_its, known.host()).err());
    }
    errors
}

/// Does so for each container that has an unreadable record of this network and plugin, and is not listed; all errors.
pub(super) fn forget_unlisted(network: &str, plugin: &str, listed: &[Owner], machine: &dyn Machine) -> Vec<Error> {
    let damaged = match record::damaged_in(&machine.root().at(record::ROOT)) {
        Ok(damaged) => damaged,
        Err(err) => return vec![err.into()],
    };
    let is_listed = |container_id: &str| listed.iter().any(|owner| owner.container_id == container_id);
    let lost = damaged.into_iter().filter(|it| it.is_of(network, plugin) && !is_listed(&it.container_id));
    let mut errors = Vec::new();
    for damaged in lost {
        let folder = match machine.folder(&damaged.container_id) {
            Ok(folder) => folder,
            Err(err) => {
                errors.push(err.into());
                continue;
            }
        };
        // Somebody may have attached it again meanwhile, or detached it.
        if !damaged.is_there() {
            continue;
        }
        let failed = forget(&damaged.container_id, machine);
        if failed.is_empty() {
            errors.extend(damaged.remove().err().map(Error::from));
        }
        errors.extend(failed);
        errors.extend(folder.close().err().map(Error::from));
    }
    errors
}
