//! What this node knows of a container's namespace: braid's records first, then libcni's cache.

use crate::apply::record;
use crate::ipam::host_local::STATE_DIR;
use crate::ipam::host_local::store::LeaseFile;
use crate::ipam::liveness::{Death, LIBCNI_CACHE_DIR, LibcniCache, Liveness, Netns, netns_at};
use crate::ipam::{Host, Owner};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Who of a network may still be alive.
#[derive(Debug)]
pub struct Known {
    cache: LibcniCache,
}

impl Known {
    /// Of the network with this name.
    pub fn of(network: &str) -> Self {
        Self { cache: LibcniCache { dir: PathBuf::from(LIBCNI_CACHE_DIR), network: network.to_owned() } }
    }

    /// What the IPAM verbs are lent.
    pub fn host(&self) -> Host<'_> {
        Host { state_dir: Path::new(STATE_DIR), liveness: self }
    }

    fn recorded(&self, owner: &Owner) -> Option<Netns> {
        let records = record::list().ok()?;
        let is_owners = |key: &record::Key| {
            key.network == self.cache.network && key.container_id == owner.container_id && key.ifname == owner.ifname
        };
        let path = records.into_iter().find(|record| is_owners(&record.key))?.netns?;
        Some(netns_at(&path))
    }
}

impl Liveness for Known {
    fn netns_of(&self, owner: &Owner, leased: SystemTime) -> Netns {
        match self.recorded(owner) {
            Some(Netns::Unknown) | None => self.cache.netns_of(owner, leased),
            Some(known) => known,
        }
    }

    fn reclaimed(&self, lease: &LeaseFile, why: Death) {
        eprintln!("network {:?}: address {} was free again: {why}", self.cache.network, lease.ip);
    }
}
