//! Deletion of the objects of a container with an unreadable record.
//!
//! The record of a pod would have named its networks. Instead, the objects are found by their owner:
//! the kernel shows the owner of each link and rule, and each lease and each journal of a pool names
//! its owners. Any other record is about one attachment: the container may have more without a
//! record, as one of a foreign plugin that calls braid as its IPAM.

use super::chain::BRAID;
use super::leases::{folders, network_of};
use super::liveness::NodeState;
use super::orphans::{self, sweep};
use crate::apply::host::{Host, Machine};
use crate::ipam::liveness::owner_of;
use crate::ipam::{host_local, whereabouts};
use crate::store::record::{self, Damaged, Folder, Key, Record};
use braid_core::cni::{Error, Owner};

/// Attachments that an unreadable record may have named.
#[derive(Debug)]
pub enum Extent {
    /// These.
    Attachments(Vec<Owner>),
    /// All of the container, in any network.
    Container,
}

impl Extent {
    fn has(&self, owner: &Owner) -> bool {
        match self {
            Self::Attachments(all) => all.iter().any(|one| is_same(one, owner)),
            Self::Container => true,
        }
    }
}

/// True if `found` is the owner of an object of the attachment `known`. A journal of a pool that was
/// read back from the pool may not know the network.
fn is_same(known: &Owner, found: &Owner) -> bool {
    let is_network = found.network.is_empty() || found.network == known.network;
    is_network && found.container_id == known.container_id && found.ifname == known.ifname
}

/// Deletes the objects of the call's container that its unreadable record may have named and that
/// are in no readable record. Returns all errors.
#[cold]
pub(super) fn forget(
    key: &Key,
    extent: Extent,
    folder: &Folder,
    machine: &dyn Machine,
) -> Vec<Error> {
    match folder.records() {
        Ok(mut records) => {
            records.retain(|record| record.key != *key);
            Unowned::of(&key.owner.container_id, extent, &records).forget(machine)
        }
        Err(err) => vec![err.into()],
    }
}

/// Objects of a container that are in no record.
pub(super) struct Unowned<'a> {
    container_id: &'a str,
    extent: Extent,
    recorded: Vec<Owner>,
}

impl<'a> Unowned<'a> {
    /// Selects the container's objects in `extent` that are in none of `records`. `records` are the
    /// container's readable records.
    pub(super) fn of(container_id: &'a str, extent: Extent, records: &[Record]) -> Self {
        Self {
            container_id,
            extent,
            recorded: records.iter().flat_map(Record::owners).collect(),
        }
    }

    fn has(&self, owner: &Owner) -> bool {
        let is_recorded = || self.recorded.iter().any(|one| is_same(one, owner));
        owner.container_id == self.container_id && self.extent.has(owner) && !is_recorded()
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

    /// Deletes the selected links and rules, and then releases the selected leases and cluster-wide
    /// addresses. Returns all errors.
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

/// Calls of a network and a plugin type.
#[derive(Clone, Copy)]
pub(super) struct Calls<'a> {
    pub(super) network: &'a str,
    /// Plugin type; `braid` for all.
    pub(super) plugin: &'a str,
    /// True if those of type `braid` are for all networks of a pod.
    pub(super) are_of_pods: bool,
}

impl Calls<'_> {
    fn extent_of(&self, damaged: &Damaged) -> Extent {
        if self.are_of_pods && damaged.is_of(self.network, Some(BRAID)) {
            return Extent::Container;
        }
        let owner = Owner::new(self.network, &damaged.container_id, damaged.ifname());
        Extent::Attachments(vec![owner])
    }
}

/// Deletes the unrecorded objects of each container that is not in `listed` and has an unreadable
/// record of one of these calls. Returns all errors.
pub(super) fn forget_unlisted(
    calls: Calls<'_>,
    listed: &[Owner],
    machine: &dyn Machine,
) -> Vec<Error> {
    let mut all = Vec::new();
    for folder in [record::ROOT, record::foreign::ROOT] {
        match record::damaged_in(&machine.root().at(folder)) {
            Ok(found) => all.extend(found),
            Err(err) => return vec![err.into()],
        }
    }
    let plugin = Some(calls.plugin).filter(|plugin| *plugin != BRAID);
    all.retain(|damaged| {
        let mut listed = listed.iter();
        damaged.is_of(calls.network, plugin)
            && !listed.any(|owner| owner.container_id == damaged.container_id)
    });
    let mut errors = Vec::new();
    for damaged in all {
        errors.extend(forget_damaged(calls, &damaged, machine));
    }
    errors
}

/// Deletes the objects that an unreadable record may have named, and then the record.
fn forget_damaged(calls: Calls<'_>, damaged: &Damaged, machine: &dyn Machine) -> Vec<Error> {
    let folder = match machine.folder(&damaged.container_id) {
        Ok(folder) => folder,
        Err(err) => return vec![err.into()],
    };
    // Another call may have attached or detached the container in the meantime.
    if !damaged.is_there() {
        return Vec::new();
    }
    let extent = calls.extent_of(damaged);
    let mut errors = match folder.records() {
        Ok(records) => Unowned::of(&damaged.container_id, extent, &records).forget(machine),
        Err(err) => vec![err.into()],
    };
    if errors.is_empty() {
        errors.extend(damaged.remove().err().map(Error::from));
    }
    errors.extend(folder.close().err().map(Error::from));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_an_unknown_network_is_told_by_its_interface() {
        let owner = |network, ifname| Owner::new(network, "c", ifname);
        let of = |extent, recorded| Unowned {
            container_id: "c",
            extent,
            recorded,
        };
        let damaged = of(Extent::Attachments(vec![owner("lan", "net1")]), Vec::new());
        assert!(damaged.has(&owner("lan", "net1")) && damaged.has(&owner("", "net1")));
        assert!(!damaged.has(&owner("", "net2")) && !damaged.has(&owner("vf", "net1")));
        let of_pod = of(Extent::Container, vec![owner("lan", "net1")]);
        assert!(of_pod.has(&owner("vf", "net2")) && of_pod.has(&owner("", "net2")));
        assert!(!of_pod.has(&owner("lan", "net1")) && !of_pod.has(&owner("", "net1")));
        assert!(!of_pod.has(&Owner::new("", "another", "net2")));
    }
}
