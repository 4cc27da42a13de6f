//! Work on one pool, under the lock of its journal.
//!
//! ```text
//!  reserve: candidate ─► journal: Intent ─► POST reservation ─► PATCH pool ─► journal: Used
//!  release: journal: Owed ─► PATCH pool ─► DELETE reservation ─► journal: gone
//!  a test of the PATCH fails: GET pool ─► journal compared with it ─► again
//!  no address is free: GET the Nodes of the pool ─► PATCH pool without the entries of those gone
//! ```

use braid_core::cni::{Error, Kind};
use braid_core::ipam::whereabouts::api::{Api, Failure, Store};
use braid_core::ipam::whereabouts::change::patch;
use braid_core::ipam::whereabouts::config::PoolRange;
use braid_core::ipam::whereabouts::fence;
use braid_core::ipam::whereabouts::journal::{Journal, Own, Place, Reservation, State};
use braid_core::ipam::whereabouts::names::{self, address, offset};
use braid_core::ipam::whereabouts::pool::{Entry, Node, Pool};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Largest number of changes for one call. Each further one follows a change by another node.
const TRIES: usize = 100;
/// Number of free addresses from which one is chosen after a conflict.
const SPREAD: usize = 16;

/// Work on a pool.
pub struct Session<'a> {
    place: &'a Place,
    node: &'a Node,
    api: &'a mut dyn Api,
    store: &'a mut dyn Store,
    journal: Journal,
    /// The pool, as last read.
    pool: Option<Pool>,
    /// Addresses with a reservation of another pool.
    refused: BTreeSet<u128>,
    /// Number of addresses that another node was faster to take.
    conflicts: usize,
}

impl<'a> Session<'a> {
    /// Reads the journal.
    pub fn open(
        place: &'a Place,
        node: &'a Node,
        api: &'a mut dyn Api,
        store: &'a mut dyn Store,
    ) -> Result<Self, Error> {
        let mut journal = store.read()?;
        journal.begin(&node.boot);
        journal.place = Some(place.clone());
        Ok(Self {
            place,
            node,
            api,
            store,
            journal,
            pool: None,
            refused: BTreeSet::new(),
            conflicts: 0,
        })
    }

    /// ADD: reserves an address for an attachment, the `requested` one or the lowest free one. After
    /// an error the journal owes what may be reserved.
    pub fn reserve(
        &mut self,
        (entry, network): (&Entry, &str),
        range: &PoolRange,
        requested: Option<IpAddr>,
    ) -> Result<IpAddr, Error> {
        if let Some(known) = self.journal.used_by(entry) {
            return self.address(known);
        }
        if !self.journal.has_pool() {
            self.read(true)?;
        }
        let mut has_fenced = false;
        for _ in 0..TRIES {
            let Some(at) = self.candidate(range, requested, entry) else {
                // Addresses that the node owes are free after they are paid.
                if self.journal.is_behind() {
                    self.settle()?;
                    self.store.write(&self.journal)?;
                } else if self.pool.is_none() {
                    self.read(true)?;
                } else if has_fenced {
                    return Err(self.full(range, requested));
                } else {
                    self.fence()?;
                    has_fenced = true;
                }
                continue;
            };
            let own = Own {
                entry: entry.clone(),
                network: network.to_owned(),
                boot: self.node.boot.clone(),
                state: State::Intent,
                reservation: Reservation::None,
            };
            self.journal.own.insert(at, own);
            if !self.has_reservation(at, entry)? {
                self.refused.insert(at);
                self.journal.own.remove(&at);
                self.conflicts += 1;
                continue;
            }
            self.settle()?;
            let is_entered = self.has_entry(at);
            if let Some(own) = self.journal.own.get_mut(&at) {
                own.state = if is_entered { State::Used } else { State::Owed };
            }
            self.store.write(&self.journal)?;
            if is_entered {
                return self.address(at);
            }
            self.conflicts += 1;
        }
        Err(self.busy())
    }

    /// DEL: releases the addresses of an attachment and returns them. The journal owes them if the
    /// API server does not answer. An attachment that the journal does not know is looked for in the
    /// pool when the node pays.
    pub fn release(&mut self, entry: &Entry) -> Result<Vec<IpAddr>, Error> {
        if !self.journal.knows(entry) {
            let key = (entry.id.clone(), entry.ifname.clone());
            self.journal.sought.insert(key);
            self.store.write(&self.journal)?;
        }
        self.release_where(|own| own.entry.is_of(&entry.id, &entry.ifname))
    }

    /// Releases all addresses for which `is_gone` is true, and returns them.
    pub fn release_where(&mut self, is_gone: impl Fn(&Own) -> bool) -> Result<Vec<IpAddr>, Error> {
        let mut released = Vec::new();
        for (at, own) in &mut self.journal.own {
            if own.state == State::Used && is_gone(own) {
                own.state = State::Owed;
                released.push(*at);
            }
        }
        let mut addresses = Vec::new();
        for at in released {
            addresses.push(self.address(at)?);
        }
        if !addresses.is_empty() {
            self.store.write(&self.journal)?;
        }
        Ok(addresses)
    }

    /// Pays the node's debts: makes the pool's entries of this node those of the journal.
    pub fn pay(&mut self) -> Result<(), Error> {
        let has_pool = self.journal.has_pool();
        if !has_pool && self.journal.own.is_empty() && self.journal.sought.is_empty() {
            return Ok(());
        }
        if !has_pool || !self.journal.sought.is_empty() {
            return self.look();
        }
        if self.journal.is_behind() {
            self.settle()?;
            self.store.write(&self.journal)?;
        }
        Ok(())
    }

    /// Compares the pool with the journal and pays. A pool that was restored from a backup, or deleted,
    /// gets the entries of this node again.
    pub fn look(&mut self) -> Result<(), Error> {
        self.read(!self.journal.wanted().is_empty())?;
        if self.journal.has_lost() {
            self.fence()?;
            self.read(true)?;
        }
        if self.journal.is_behind() {
            self.settle()?;
        }
        self.store.write(&self.journal)
    }

    /// Frees the addresses of nodes that are gone, in the pool as last read.
    fn fence(&mut self) -> Result<(), Error> {
        let pool = self.pool.take().unwrap_or_default();
        for (text, note) in pool.notes() {
            if note.node.name == self.node.name {
                continue;
            }
            let found = self.api.node(&note.node.name);
            let found = found.map_err(|err| failed("read Node", &note.node.name, &err))?;
            if !fence::is_gone(&note.node, found.as_ref()) {
                continue;
            }
            let entries = pool.entries_of(&note);
            // A pool without these entries would no longer tell of their reservations.
            for (at, entry) in &entries {
                self.unreserve(*at, entry)?;
            }
            let patch = fence::patch(&pool.uid, &note.node, text, &entries);
            match self.api.change_pool(&self.place.name, &patch) {
                // The node, or another one, was faster.
                Ok(_) | Err(Failure::Unfit | Failure::Missing) => {}
                Err(err) => return Err(failed("change IPPool", &self.place.name, &err)),
            }
        }
        Ok(())
    }

    /// Returns the address to try next: the lowest free one. After a conflict it is one of the next
    /// few, since the node that was faster goes on from the lowest one too.
    fn candidate(
        &self,
        range: &PoolRange,
        requested: Option<IpAddr>,
        entry: &Entry,
    ) -> Option<u128> {
        let net = self.place.net;
        let is_taken = |address: IpAddr| {
            offset(net, address)
                .is_none_or(|at| self.journal.is_taken(at) || self.refused.contains(&at))
        };
        let free = match requested {
            Some(requested) => Some(requested).filter(|address| !is_taken(*address)),
            None if self.conflicts == 0 => range.free(is_taken).next(),
            None => {
                let next: Vec<IpAddr> = range.free(is_taken).take(SPREAD).collect();
                let chosen = spread(&entry.id, self.conflicts) % next.len().max(1);
                next.get(chosen).copied()
            }
        };
        offset(net, free?)
    }

    /// Reserves the address in all ranges that have it. Returns false if another attachment has a
    /// reservation.
    fn has_reservation(&mut self, at: u128, entry: &Entry) -> Result<bool, Error> {
        if !self.place.has_reservations {
            self.store.write(&self.journal)?;
            return Ok(true);
        }
        self.set_reservation(at, Reservation::Asked);
        self.store.write(&self.journal)?;
        let name = self.reservation_name(at)?;
        let made = match self.api.reserve(&name, entry) {
            // It may be this call's, if the answer to an earlier attempt was lost.
            Err(Failure::Exists) => {
                let found = self.api.reservation(&name);
                let found = found.map_err(|err| failed("read reservation", &name, &err))?;
                let own = found.filter(|found| found.container_id == entry.id);
                own.map(|found| found.uid)
            }
            made => Some(made.map_err(|err| failed("create reservation", &name, &err))?),
        };
        let is_made = made.is_some();
        if let Some(uid) = made {
            self.set_reservation(at, Reservation::Made(uid));
        }
        Ok(is_made)
    }

    fn set_reservation(&mut self, at: u128, reservation: Reservation) {
        if let Some(own) = self.journal.own.get_mut(&at) {
            own.reservation = reservation;
        }
    }

    /// Makes the pool's entries of this node those of the journal. Then deletes the reservations of
    /// addresses that are owed.
    fn settle(&mut self) -> Result<(), Error> {
        for _ in 0..TRIES {
            let wanted = self.journal.wanted();
            if !self.journal.has_pool() {
                if wanted.is_empty() {
                    return self.forget_owed();
                }
                self.read(true)?;
            }
            let seen = self.journal.seen.clone().unwrap_or_default();
            let patch = patch(&seen, self.node, &wanted);
            match self.api.change_pool(&self.place.name, &patch) {
                Ok(pool) => {
                    let has_found = self.take_in(&pool)?;
                    self.forget_owed()?;
                    if !has_found {
                        return Ok(());
                    }
                }
                Err(Failure::Unfit | Failure::Missing) => {
                    self.read(!self.journal.wanted().is_empty())?;
                    // The change was made, and its answer was lost; or another node was faster.
                    if !self.journal.is_behind() {
                        return Ok(());
                    }
                }
                Err(err) => return Err(failed("change IPPool", &self.place.name, &err)),
            }
        }
        Err(self.busy())
    }

    /// Removes owed addresses that the pool does not have from the journal. After a change of this node, none that was given up
    /// can still be carried out, as all test the annotation's earlier text.
    fn forget_owed(&mut self) -> Result<(), Error> {
        let owed = self.journal.own.iter();
        let seen = self.journal.seen.as_ref();
        let is_in_pool =
            |at: &u128, own: &Own| seen.is_some_and(|seen| seen.own.get(at) == Some(&own.entry));
        let owed: Vec<(u128, Own)> = owed
            .filter(|(at, own)| own.state == State::Owed && !is_in_pool(at, own))
            .map(|(at, own)| (*at, own.clone()))
            .collect();
        for (at, own) in owed {
            match own.reservation {
                Reservation::None => {}
                Reservation::Made(uid) => self.delete_reservation(at, &uid)?,
                Reservation::Asked => self.unreserve(at, &own.entry)?,
            }
            self.journal.own.remove(&at);
        }
        Ok(())
    }

    /// Deletes the reservation of an entry, if there is one.
    fn unreserve(&mut self, at: u128, entry: &Entry) -> Result<(), Error> {
        let name = self.reservation_name(at)?;
        let found = self.api.reservation(&name);
        let found = found.map_err(|err| failed("read reservation", &name, &err))?;
        match found.filter(|found| found.is_of(entry)) {
            Some(found) => self.delete_reservation(at, &found.uid),
            None => Ok(()),
        }
    }

    fn delete_reservation(&mut self, at: u128, uid: &str) -> Result<(), Error> {
        let name = self.reservation_name(at)?;
        let deleted = self.api.unreserve(&name, uid);
        deleted.map_err(|err| failed("delete reservation", &name, &err))
    }

    /// Reads the pool. If it does not exist, it is made, or else the journal takes this in.
    fn read(&mut self, is_needed: bool) -> Result<(), Error> {
        let name = &self.place.name;
        let mut pool = self.api.pool(name);
        if is_needed && pool == Ok(None) {
            pool = match self.api.create_pool(name, self.place.net) {
                // Another node was faster.
                Err(Failure::Exists) => self.api.pool(name),
                made => made.map(Some),
            };
        }
        match pool {
            Ok(Some(pool)) => {
                self.take_in(&pool)?;
                self.pool = Some(pool);
                Ok(())
            }
            Ok(None) if is_needed => Err(failed("create IPPool", name, &Failure::Missing)),
            Ok(None) => {
                self.journal.lose_pool();
                Ok(())
            }
            Err(err) => Err(failed("read IPPool", name, &err)),
        }
    }

    /// Returns true if the pool has entries of this node that the journal did not know.
    fn take_in(&mut self, pool: &Pool) -> Result<bool, Error> {
        let has_found = self.journal.read(pool, self.node);
        if has_found {
            self.store.write(&self.journal)?;
        }
        Ok(has_found)
    }

    fn has_entry(&self, at: u128) -> bool {
        let own = self.journal.own.get(&at);
        let seen = self.journal.seen.as_ref();
        let entered = seen.and_then(|seen| seen.own.get(&at));
        own.is_some_and(|own| Some(&own.entry) == entered)
    }

    fn address(&self, at: u128) -> Result<IpAddr, Error> {
        let net = self.place.net;
        address(net, at).ok_or_else(|| {
            Error::internal(format!(
                "IPPool {}: offset {at} is outside",
                self.place.name
            ))
        })
    }

    fn reservation_name(&self, at: u128) -> Result<String, Error> {
        let address = self.address(at)?;
        Ok(names::reservation(&self.place.network, address))
    }

    fn full(&self, range: &PoolRange, requested: Option<IpAddr>) -> Error {
        let name = &self.place.name;
        if let Some(requested) = requested {
            let why = format!("IPPool {name}: address {requested} is in use");
            return Error::new(Kind::NoFreeAddress, why);
        }
        let used = self.journal.taken.len() + self.journal.own.len();
        let excluded = range.exclude.len();
        let why = format!(
            "no address of {}-{} is free: IPPool {name} has {used} in use, {} are reserved by other \
             ranges, and {excluded} networks are excluded",
            range.first,
            range.last,
            self.refused.len()
        );
        Error::new(Kind::NoFreeAddress, why)
    }

    fn busy(&self) -> Error {
        let why = format!(
            "IPPool {}: other nodes changed it during each of {TRIES} attempts",
            self.place.name
        );
        Error::new(Kind::TryAgain, why)
    }
}

/// Returns a number that differs between containers, and from one conflict to the next.
fn spread(id: &str, conflicts: usize) -> usize {
    let step = |sum: usize, byte: u8| sum.wrapping_mul(31).wrapping_add(usize::from(byte));
    id.bytes().fold(conflicts, step)
}

fn failed(doing: &str, name: &str, err: &Failure) -> Error {
    let kind = match err {
        Failure::Lasting(_) => Kind::Internal,
        Failure::Exists | Failure::Unfit | Failure::Missing | Failure::Passing(_) => Kind::TryAgain,
    };
    Error::new(kind, format!("{doing} {name}: {err}"))
}
