//! Work on one pool, under the lock of its journal.
//!
//! ```text
//!  reserve: candidate ─► journal: Intent ─► POST reservation ─► PATCH pool ─► journal: Used
//!  release: journal: Owed ─► PATCH pool ─► DELETE reservation ─► journal: gone
//!  a test of the PATCH fails: GET pool ─► journal compared with it ─► again
//! ```

use braid_core::cni::{Error, Kind};
use braid_core::ipam::whereabouts::api::{Api, Failure, Store};
use braid_core::ipam::whereabouts::change::patch;
use braid_core::ipam::whereabouts::config::PoolRange;
use braid_core::ipam::whereabouts::journal::{Journal, Own, Place, Reservation, State};
use braid_core::ipam::whereabouts::names::{self, address, offset};
use braid_core::ipam::whereabouts::pool::{Entry, Node};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Largest number of changes for one call. Each further one follows a change by another node.
const TRIES: usize = 100;

/// Work on a pool.
pub struct Session<'a> {
    place: &'a Place,
    node: &'a Node,
    api: &'a mut dyn Api,
    store: &'a mut dyn Store,
    journal: Journal,
    /// Addresses with a reservation of another pool.
    refused: BTreeSet<u128>,
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
            refused: BTreeSet::new(),
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
        let mut is_fresh = self.journal.seen.is_none();
        if is_fresh {
            self.read()?;
        }
        for _ in 0..TRIES {
            let Some(at) = self.candidate(range, requested) else {
                // Addresses that the node owes are free after they are paid.
                if self.journal.is_behind() {
                    self.settle()?;
                    self.store.write(&self.journal)?;
                } else if is_fresh {
                    return Err(self.full(range, requested));
                } else {
                    self.read()?;
                }
                is_fresh = true;
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
        }
        Err(self.busy())
    }

    /// DEL: releases the addresses of an attachment and returns them. The journal owes them if the
    /// API server does not answer.
    pub fn release(&mut self, entry: &Entry) -> Result<Vec<IpAddr>, Error> {
        self.release_where(|own| own.entry == *entry)
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
        if self.journal.seen.is_none() && self.journal.own.is_empty() {
            return Ok(());
        }
        if self.journal.seen.is_none() {
            self.read()?;
        }
        if self.journal.is_behind() {
            self.settle()?;
            self.store.write(&self.journal)?;
        }
        Ok(())
    }

    /// Returns the address to try next.
    fn candidate(&self, range: &PoolRange, requested: Option<IpAddr>) -> Option<u128> {
        let net = self.place.net;
        let is_taken = |address: IpAddr| {
            offset(net, address)
                .is_none_or(|at| self.journal.is_taken(at) || self.refused.contains(&at))
        };
        let free = match requested {
            Some(requested) => Some(requested).filter(|address| !is_taken(*address)),
            None => range.free(is_taken),
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
            let seen = self.journal.seen.clone().unwrap_or_default();
            let patch = patch(&seen, self.node, &self.journal.wanted());
            match self.api.change_pool(&self.place.name, &patch) {
                Ok(pool) => {
                    self.journal.read(&pool, self.node);
                    return self.forget_owed();
                }
                Err(Failure::Unfit | Failure::Missing) => {
                    self.read()?;
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

    /// Removes owed addresses from the journal. After a change of this node, none that was given up
    /// can still be carried out, as all test the annotation's earlier text.
    fn forget_owed(&mut self) -> Result<(), Error> {
        let owed = self.journal.own.iter();
        let owed: Vec<(u128, Own)> = owed
            .filter(|(_, own)| own.state == State::Owed)
            .map(|(at, own)| (*at, own.clone()))
            .collect();
        for (at, own) in owed {
            let uid = match own.reservation {
                Reservation::None => None,
                Reservation::Made(uid) => Some(uid),
                Reservation::Asked => {
                    let name = self.reservation_name(at)?;
                    let found = self.api.reservation(&name);
                    let found = found.map_err(|err| failed("read reservation", &name, &err))?;
                    let found = found.filter(|found| found.container_id == own.entry.id);
                    found.map(|found| found.uid)
                }
            };
            if let Some(uid) = uid {
                let name = self.reservation_name(at)?;
                let deleted = self.api.unreserve(&name, &uid);
                deleted.map_err(|err| failed("delete reservation", &name, &err))?;
            }
            self.journal.own.remove(&at);
        }
        Ok(())
    }

    /// Reads the pool, and creates it if it is missing.
    fn read(&mut self) -> Result<(), Error> {
        let name = &self.place.name;
        let mut pool = self.api.pool(name);
        if pool == Ok(None) {
            pool = match self.api.create_pool(name, self.place.net) {
                // Another node was faster.
                Err(Failure::Exists) => self.api.pool(name),
                made => made.map(Some),
            };
        }
        match pool {
            Ok(Some(pool)) => {
                self.journal.read(&pool, self.node);
                Ok(())
            }
            Ok(None) => Err(failed("create IPPool", name, &Failure::Missing)),
            Err(err) => Err(failed("read IPPool", name, &err)),
        }
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

fn failed(doing: &str, name: &str, err: &Failure) -> Error {
    let kind = match err {
        Failure::Lasting(_) => Kind::Internal,
        Failure::Exists | Failure::Unfit | Failure::Missing | Failure::Passing(_) => Kind::TryAgain,
    };
    Error::new(kind, format!("{doing} {name}: {err}"))
}
