//! Leases of terminated containers, in all `host-local` lease folders of this node.

use super::liveness::NodeState;
use super::recorded::{self, host_locals};
use crate::apply::host::Machine;
use crate::ipam::host_local::store::LeaseFile;
use crate::ipam::host_local::{reclaim, surely_dead};
use crate::ipam::liveness::Death;
use crate::store::record::Record;
use crate::store::root::Root;
use braid_core::cni::Error;
use braid_core::ipam::host_local::config::DEFAULT_DATA_DIR;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the lease folders: those in the default `dataDir`, and those in recorded configurations.
/// Each folder has the leases of one network.
pub fn folders(records: &[Record], root: &Root) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let entries = fs::read_dir(root.at(DEFAULT_DATA_DIR));
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            folders.insert(path);
        }
    }
    for record in records {
        for (_, chain) in recorded::chains(record) {
            folders.extend(host_locals(&chain).map(|(_, config)| config.path()));
        }
    }
    folders
}

/// Returns the name of the network whose leases are in the folder.
pub fn network_of(folder: &Path) -> String {
    folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Returns the leases of terminated containers in the folder.
pub fn dead(folder: &Path, machine: &dyn Machine) -> Result<Vec<(LeaseFile, Death)>, Error> {
    surely_dead(folder, &node_state(folder, machine))
}

/// Releases the leases of terminated containers in the folder, and deletes the host's rules for
/// their addresses.
pub fn take_back(folder: &Path, machine: &dyn Machine) -> Result<Vec<(LeaseFile, Death)>, Error> {
    let node = node_state(folder, machine);
    let freed = reclaim(folder, node.host());
    node.take_reclaimed().end_rules_on(machine);
    freed
}

/// Returns the state of the containers with leases in the folder.
pub(super) fn node_state(folder: &Path, machine: &dyn Machine) -> NodeState {
    NodeState::of(machine.root(), &network_of(folder), machine.log())
}
