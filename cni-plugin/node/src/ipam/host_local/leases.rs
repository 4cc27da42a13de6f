//! Lease files of a data directory.

use super::store::{self, LeaseFile};
use braid_core::cni::Error;
use std::path::Path;

/// Reads every lease in the data directory at `path`, without the lock.
pub fn read_leases(path: &Path) -> Result<Vec<LeaseFile>, Error> {
    store::read_leases(path)
        .map_err(|e| Error::io(format!("read leases of {}: {e}", path.display())))
}
