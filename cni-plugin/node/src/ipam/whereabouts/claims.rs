//! Addresses of IPAMClaims in the pools of this node. A claim keeps its entry from one pod to the next, on
//! any node, until it is deleted.

use super::requests::{delete_reservations, failed};
use super::session::{Session, TRIES};
use super::store::{self, FOLDER, JournalFile};
use super::way::Way;
use crate::ipam::Host;
use braid_core::cni::Error;
use braid_core::ipam::whereabouts::api::{Failure, Store};
use braid_core::ipam::whereabouts::claims::{patch, unused};
use braid_core::ipam::whereabouts::journal::{Journal, Own, State};
use braid_core::ipam::whereabouts::steps;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Returns the uids of the claims in the pools of this node, as last read.
pub fn uids() -> Result<BTreeSet<String>, Error> {
    let mut uids = BTreeSet::new();
    for path in store::journals(Path::new(FOLDER))? {
        uids.extend(claims(&store::peek(&path)?));
    }
    Ok(uids)
}

fn claims(journal: &Journal) -> BTreeSet<String> {
    let seen = journal.seen.iter().flat_map(|seen| seen.claims.values());
    let own = journal.own.values().map(|own| &own.entry);
    let uids = seen.chain(own).filter_map(|entry| entry.claim());
    uids.map(str::to_owned).collect()
}

/// Ends the use of the claims in `left` by this node: their pods are gone. Then frees the addresses of
/// the claims in `deleted` that no node uses, and returns them.
pub fn free(
    left: &BTreeSet<String>,
    deleted: &BTreeSet<String>,
    host: Host<'_>,
) -> Result<Vec<IpAddr>, Error> {
    let (mut freed, mut errors) = (Vec::new(), Vec::new());
    for path in store::journals(Path::new(FOLDER))? {
        let journal = store::peek(&path)?;
        let is_left = |own: &Own| {
            let uid = own.entry.claim();
            own.state == State::Used && uid.is_some_and(|uid| left.contains(uid))
        };
        if !journal.own.values().any(is_left) && claims(&journal).is_disjoint(deleted) {
            continue;
        }
        match free_in(&path, &is_left, deleted, host) {
            Ok(addresses) => freed.extend(addresses),
            Err(err) => errors.push(err),
        }
    }
    Error::joined(&errors).map(|()| freed)
}

fn free_in(
    path: &Path,
    is_left: &dyn Fn(&Own) -> bool,
    deleted: &BTreeSet<String>,
    host: Host<'_>,
) -> Result<Vec<IpAddr>, Error> {
    let journal = JournalFile::at(path).update(&mut |journal| {
        steps::release_where(journal, is_left);
    })?;
    let Some(place) = journal.place else {
        return Ok(Vec::new());
    };
    let mut way = Way::new(host.servers, &place.kubeconfig, None, Duration::MAX)?;
    let node = way.node()?;
    let mut journal = JournalFile::lock(Path::new(FOLDER), &place.name)?;
    let mut session = Session::open(&place, &node, &mut *way.server, &mut journal)?;
    session.pay()?;
    session.free_claims(deleted)
}

impl Session<'_> {
    /// Frees the addresses of claims that were deleted, by their uids, unless a node still uses them.
    /// Returns the addresses.
    pub fn free_claims(&mut self, deleted: &BTreeSet<String>) -> Result<Vec<IpAddr>, Error> {
        for _ in 0..TRIES {
            self.read(false)?;
            let pool = self.pool.take().unwrap_or_default();
            let unused = unused(&pool, deleted);
            if unused.is_empty() {
                return Ok(Vec::new());
            }
            let mut reserved = Vec::new();
            for (at, entry) in &unused {
                let name = self.reservation_name(*at)?;
                let found = self.api.reservation(&name);
                let found = found.map_err(|err| failed("read reservation", &name, &err))?;
                let found = found.filter(|found| found.is_of_claim(entry));
                reserved.extend(found.map(|found| (name, found.uid)));
            }
            delete_reservations(self.api, &reserved)?;
            let patch = patch(&pool, &unused);
            let sought = self.journal.sought.clone();
            match self.api.change_pool(&self.place.name, &patch) {
                Ok(pool) => {
                    self.take_in(&pool, &sought)?;
                    let offsets: Vec<u128> = unused.into_keys().collect();
                    return Ok(steps::addresses(self.place.net, &offsets));
                }
                // Another node was faster, or uses the pool.
                Err(Failure::Unfit | Failure::Missing) => {}
                Err(err) => return Err(failed("change IPPool", &self.place.name, &err)),
            }
        }
        Err(self.busy())
    }
}
