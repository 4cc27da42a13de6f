//! Leases whose owners are surely gone, in every folder of leases that this node is known to have.

use super::liveness::NodeState;
use super::recorded::{self, host_locals};
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

/// The folders of the default `dataDir`, and those that the records' configurations name; one is
/// one network's.
pub fn folders(records: &[Record], root: &Root) -> BTreeSet<PathBuf> {
    let default = fs::read_dir(root.at(DEFAULT_DATA_DIR))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut folders: BTreeSet<PathBuf> = default.filter(|path| path.is_dir()).collect();
    for (_, chain) in records.iter().flat_map(recorded::chains) {
        folders.extend(host_locals(&chain).map(|(_, config)| config.path()));
    }
    folders
}

/// The network whose leases a folder holds.
pub fn network_of(folder: &Path) -> String {
    folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The leases of the dead in a folder.
pub fn dead(folder: &Path, root: &Root) -> Result<Vec<(LeaseFile, Death)>, Error> {
    surely_dead(folder, &NodeState::of(root, &network_of(folder)))
}

/// Frees the leases of the dead in a folder, and ends what the host's rules say of their addresses.
pub fn take_back(folder: &Path, root: &Root) -> Result<Vec<(LeaseFile, Death)>, Error> {
    reclaim(
        folder,
        NodeState::of(root, &network_of(folder)).quiet().host(),
    )
}
