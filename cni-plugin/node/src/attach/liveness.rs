//! State of a container's namespace, as this node knows it: braid's records first, then libcni's
//! cache.

use super::recorded;
use crate::Error;
use crate::apply::executor::{OnError, execute};
use crate::ipam::Host;
use crate::ipam::host_local::STATE_DIR;
use crate::ipam::host_local::store::LeaseFile;
use crate::ipam::liveness::{
    Death, LIBCNI_CACHE_DIR, LibcniCache, Liveness, Netns, Recorded, owner_of,
};
use crate::kernel::Kernel;
use crate::store::holder::is_alive;
pub use crate::store::holder::netns_of;
use crate::store::record::{self, Record};
use crate::store::root::Root;
use braid_core::cni::{Attachment, Owner};
use braid_core::plan::Facts;
use braid_core::plan::step::{OwnedKind, Step};
use std::cell::OnceCell;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Containers of a network that may still be alive.
#[derive(Debug)]
pub struct NodeState {
    /// Folder of the records.
    records_at: PathBuf,
    /// Folder of the lease index.
    index_at: PathBuf,
    cache: LibcniCache,
    /// All of the node, read when somebody's death is first asked about: a full range asks about
    /// each of its owners.
    records: OnceCell<Vec<Record>>,
    is_quiet: bool,
}

impl NodeState {
    /// Of the network with this name.
    pub fn of(root: &Root, network: &str) -> Self {
        let cache = LibcniCache {
            dir: root.at(LIBCNI_CACHE_DIR),
            network: network.to_owned(),
        };
        let [records_at, index_at] = [record::ROOT, STATE_DIR].map(|path| root.at(path));
        Self {
            records_at,
            index_at,
            cache,
            records: OnceCell::new(),
            is_quiet: false,
        }
    }

    /// For a caller that tells of each lease itself.
    #[must_use]
    pub fn quiet(self) -> Self {
        Self {
            is_quiet: true,
            ..self
        }
    }

    /// Host that is lent to the IPAM verbs.
    pub fn host(&self) -> Host<'_> {
        Host {
            state_dir: &self.index_at,
            liveness: self,
            attachment: None,
        }
    }

    /// The same for a verb that is about one container.
    pub fn host_of<'a>(&'a self, attachment: &'a Attachment) -> Host<'a> {
        Host {
            attachment: Some(attachment),
            ..self.host()
        }
    }

    fn recorded_netns(&self, owner: &Owner) -> Option<Netns> {
        let records = self
            .records
            .get_or_init(|| record::list_in(&self.records_at).unwrap_or_default());
        let is_owners = |record: &&Record| record.owners().any(|its| its == *owner);
        records
            .iter()
            .filter(|record| record.netns.is_some())
            .find(is_owners)
            .map(netns_of)
    }
}

impl Liveness for NodeState {
    fn network(&self) -> &str {
        &self.cache.network
    }

    fn netns_of(&self, owner: &Owner, leased: SystemTime) -> Netns {
        match self.recorded_netns(owner) {
            Some(Netns::Unknown) | None => self.cache.netns_of(owner, leased),
            Some(known) => known,
        }
    }

    fn recorded(&self, path: &Path, is_missing: &dyn Fn(IpAddr) -> bool) -> Vec<Recorded> {
        let mut missing = Vec::new();
        let read = record::each_in(&self.records_at, |record, is_idle| {
            let mut leased = recorded::leased(record, self.network(), path);
            leased.retain(|(ip, _)| is_missing(*ip));
            if !leased.is_empty() && is_alive(record) {
                missing.extend(leased.into_iter().map(|(ip, owner)| Recorded {
                    ip,
                    owner,
                    is_idle,
                }));
            }
        });
        if let Err(err) = read {
            crate::tell!("{err}");
        }
        missing
    }

    fn reclaimed(&self, lease: &LeaseFile, why: Death) {
        if !self.is_quiet {
            crate::tell!(
                "network {:?}: address {} was free again: {why}",
                self.network(),
                lease.ip
            );
        }
        for err in owner_of(lease, self.network())
            .map(|owner| end_rules(&owner))
            .unwrap_or_default()
        {
            crate::tell!("{err}");
        }
    }
}

/// Ends what the host's rules say of the address of a container that is gone: the next one to have
/// it is not to be reached by its ports. The rest is left to its DEL or GC, which may hold locks
/// that this call needs.
fn end_rules(owner: &Owner) -> Vec<Error> {
    let steps = [
        OwnedKind::HostPorts,
        OwnedKind::Masquerades,
        OwnedKind::Firewall,
    ]
    .map(|kind| Step::Forget(kind, owner.short()));
    match Kernel::open(None) {
        Ok(mut kernel) => execute(&mut kernel, &steps, &Facts::default(), OnError::GoOn).errors,
        Err(err) => vec![err],
    }
}
