//! State of container namespaces, from braid's records or else libcni's cache.

use super::recorded;
use crate::apply::executor::OnError;
use crate::apply::host::{Host, Machine};
use crate::ipam;
use crate::ipam::host_local::STATE_DIR;
use crate::ipam::host_local::store::LeaseFile;
use crate::ipam::liveness::{
    Death, LIBCNI_CACHE_DIR, LibcniCache, Liveness, Netns, Recorded, owner_of,
};
use crate::log::Log;
use crate::source::pools::Kubernetes;
use crate::store::holder::is_alive;
pub use crate::store::holder::netns_of;
use crate::store::record::{self, Record};
use crate::store::root::Root;
use braid_core::cni::{Attachment, Owner};
use braid_core::plan::Facts;
use braid_core::plan::step::{OwnedKind, Step};
use std::cell::{OnceCell, RefCell};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Records and caches that show which containers of a network are still running.
#[derive(Debug)]
pub struct NodeState {
    /// Folder of the records.
    records_at: PathBuf,
    /// Folder of the lease index.
    index_at: PathBuf,
    cache: LibcniCache,
    /// Records of all networks. They are read once, at the first query, because an IPAM with a full
    /// range queries the state of each owner.
    records: OnceCell<Vec<Record>>,
    log: Log,
    /// Leases of terminated containers that a reservation released, each with the reason.
    reclaimed: RefCell<Vec<(LeaseFile, Death)>>,
}

impl NodeState {
    /// Creates the state for the containers of a network.
    pub fn of(root: &Root, network: &str, log: &Log) -> Self {
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
            log: log.clone(),
            reclaimed: RefCell::default(),
        }
    }

    /// Returns and clears the leases that the IPAM released because their containers are gone.
    pub fn take_reclaimed(&self) -> Reclaimed {
        let network = self.network().to_owned();
        let leases = self.reclaimed.take();
        Reclaimed { network, leases }
    }

    /// Returns the context for IPAM calls that are not for one container.
    pub fn host(&self) -> ipam::Host<'_> {
        ipam::Host {
            state_dir: &self.index_at,
            liveness: self,
            attachment: None,
            prober: None,
            servers: &Kubernetes,
            log: &self.log,
        }
    }

    /// Returns the context for IPAM calls that are for one container.
    pub fn host_of<'a>(&'a self, attachment: &'a Attachment) -> ipam::Host<'a> {
        ipam::Host {
            attachment: Some(attachment),
            ..self.host()
        }
    }

    fn recorded_netns(&self, owner: &Owner) -> Option<Netns> {
        let records = self
            .records
            .get_or_init(|| record::list_in(&self.records_at).unwrap_or_default());
        let is_owners =
            |record: &&Record| record.netns.is_some() && record.owners().any(|its| its == *owner);
        records.iter().find(is_owners).map(netns_of)
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
                for (ip, owner) in leased {
                    missing.push(Recorded { ip, owner, is_idle });
                }
            }
        });
        if let Err(err) = read {
            self.log.warn(&err);
        }
        missing
    }

    fn reclaimed(&self, lease: &LeaseFile, why: Death) {
        self.reclaimed.borrow_mut().push((lease.clone(), why));
    }
}

/// Leases of terminated containers that were released.
#[derive(Debug, Default)]
pub struct Reclaimed {
    network: String,
    /// The leases, each with the reason.
    pub leases: Vec<(LeaseFile, Death)>,
}

impl Reclaimed {
    /// Logs each released lease, and deletes the host's rules of its owner.
    pub fn end(&self, host: &mut dyn Host) {
        self.report(host.log());
        self.end_rules(host);
    }

    /// Does [`Self::end`] for a call that has not opened the node. Opens it only if a lease was
    /// released.
    pub fn end_on(&self, machine: &dyn Machine) {
        self.report(machine.log());
        self.end_rules_on(machine);
    }

    fn report(&self, log: &Log) {
        for (LeaseFile { ip, .. }, why) in &self.leases {
            let network = &self.network;
            log.line(format_args!(
                "network {network:?}: released the lease of address {ip}: {why}"
            ));
        }
    }

    /// Does [`Self::end_rules`] for a call that has not opened the node. Opens it only if a lease
    /// was released.
    pub fn end_rules_on(&self, machine: &dyn Machine) {
        if self.leases.is_empty() {
            return;
        }
        match machine.open(None) {
            Ok(mut host) => self.end_rules(&mut *host),
            Err(err) => machine.log().warn(&err),
        }
    }

    /// Deletes the host's rules for the released addresses, so that the rules do not affect the
    /// next container with such an address. The other objects of a terminated container are left to
    /// its DEL or to GC, which may hold locks that this call needs.
    fn end_rules(&self, host: &mut dyn Host) {
        const KINDS: [OwnedKind; 3] = [
            OwnedKind::HostPorts,
            OwnedKind::Masquerades,
            OwnedKind::Firewall,
        ];
        let mut steps = Vec::new();
        for (lease, _) in &self.leases {
            if let Some(owner) = owner_of(lease, &self.network) {
                steps.extend(KINDS.map(|kind| Step::Forget(kind, owner.short())));
            }
        }
        if steps.is_empty() {
            return;
        }
        for err in host
            .execute(&steps, &Facts::default(), OnError::GoOn)
            .errors
        {
            host.log().warn(&err);
        }
    }
}
