//! Reservations of addresses: an address that ranges share is given out in one of them alone.

use super::requests::{delete_reservations, failed, uid_of};
use super::session::Session;
use braid_core::cni::Error;
use braid_core::ipam::whereabouts::api::{Api, Entered, Failure, Reserved};
use braid_core::ipam::whereabouts::journal::{Own, Reservation};
use braid_core::ipam::whereabouts::pool::Entry;
use braid_core::ipam::whereabouts::{names, steps};
use std::collections::{BTreeMap, BTreeSet};

/// Requests for reservations, and the addresses that they are for.
#[derive(Default)]
struct Asked<'n> {
    of: Vec<(u128, &'n Own)>,
    requests: Vec<(String, Entry)>,
}

/// Reads all reservations.
pub(super) fn reservations(api: &mut dyn Api) -> Result<Vec<Reserved>, Error> {
    let all = api.reservations();
    all.map_err(|err| failed("read", "all reservations", &err))
}

impl Session<'_> {
    /// Reserves addresses in all ranges that contain them. Returns the addresses that another attachment
    /// has reserved; they are not the node's then.
    pub(super) fn refused_of(
        &mut self,
        new: &BTreeMap<u128, Own>,
    ) -> Result<BTreeSet<u128>, Error> {
        if !self.place.has_reservations {
            return Ok(BTreeSet::new());
        }
        let asked = self.asked(new)?;
        let made = self.api.reserve_all(&asked.requests, &self.place.name);
        let refused = self.judge(&asked, made)?;
        if !refused.is_empty() {
            self.update(&mut |journal| journal.own.retain(|at, _| !refused.contains(at)))?;
        }
        Ok(refused)
    }

    /// Reserves addresses and enters them into the pool at the same time, one round trip sooner than one
    /// after the other. No attachment has an address before both are done, and the node owes an address
    /// after one alone. Returns the addresses that another attachment has reserved.
    pub(super) fn enter_at_once(
        &mut self,
        new: &BTreeMap<u128, Own>,
    ) -> Result<BTreeSet<u128>, Error> {
        let asked = self.asked(new)?;
        let mut wanted = self.journal.wanted();
        wanted.extend(new.iter().map(|(at, own)| (*at, own.entry.clone())));
        let (patch, sought) = (self.patch(&wanted), self.journal.sought.clone());
        let Entered { reserved, changed } =
            self.api.enter(&asked.requests, &self.place.name, &patch);
        let refused = self.judge(&asked, reserved);
        let reserved: BTreeSet<u128> = self.reserved.keys().copied().collect();
        if reserved.len() < new.len() {
            let left: Vec<u128> = new.keys().copied().collect();
            self.update(&mut |journal| {
                let left = left.iter().filter(|at| !reserved.contains(at));
                steps::give_up(journal, left);
            })?;
        }
        self.take_in_change(changed, &sought)?;
        refused
    }

    /// Returns the requests for the reservations of addresses. An address that a claim has is reserved
    /// already.
    fn asked<'n>(&self, new: &'n BTreeMap<u128, Own>) -> Result<Asked<'n>, Error> {
        let mut asked = Asked::default();
        for (at, own) in new {
            if own.reservation == Reservation::None {
                continue;
            }
            let entry = Entry {
                id: own.entry.holder(self.node),
                ..own.entry.clone()
            };
            asked.requests.push((self.reservation_name(*at)?, entry));
            asked.of.push((*at, own));
        }
        Ok(asked)
    }

    /// Judges the answers to requests for reservations. Returns the addresses that another attachment
    /// has reserved.
    fn judge(
        &mut self,
        asked: &Asked<'_>,
        made: Vec<Result<String, Failure>>,
    ) -> Result<BTreeSet<u128>, Error> {
        let mut refused = BTreeSet::new();
        for (((at, own), (name, _)), made) in asked.of.iter().zip(&asked.requests).zip(made) {
            let uid = match made {
                // It may be this node's, if the answer to an earlier attempt was lost.
                Err(Failure::Exists) => {
                    let of = (self.node, &*self.place.name);
                    uid_of(self.api, name, &own.entry, of)?
                }
                made => Some(made.map_err(|err| failed("create reservation", name, &err))?),
            };
            match uid {
                Some(uid) => {
                    self.reserved.insert(*at, uid);
                }
                None => {
                    refused.insert(*at);
                }
            }
        }
        self.refused.extend(&refused);
        self.conflicts += usize::from(!refused.is_empty());
        Ok(refused)
    }

    /// Deletes the reservations of addresses that are owed.
    pub(super) fn end_reservations(&mut self, gone: &BTreeMap<u128, Own>) -> Result<(), Error> {
        let mut all = Vec::new();
        for (at, own) in gone {
            let name = self.reservation_name(*at)?;
            match &own.reservation {
                Reservation::None => {}
                Reservation::Made(uid) => all.push((name, uid.clone())),
                Reservation::Asked => {
                    let of = (self.node, &*self.place.name);
                    let uid = uid_of(self.api, &name, &own.entry, of)?;
                    all.extend(uid.map(|uid| (name, uid)));
                }
            }
        }
        delete_reservations(self.api, &all)
    }

    /// Deletes the reservations of `all` that were made for this pool and are of no entry: a request
    /// that was given up may be carried out after the node has paid. Those of other nodes go after
    /// their Node objects. `all` may be older than the lock for requests.
    pub fn collect_reservations(&mut self, all: &[Reserved]) -> Result<(), Error> {
        let of_pool: Vec<(u128, &Reserved)> = all
            .iter()
            .filter_map(|found| Some((self.offset_of(found)?, found)))
            .filter(|(at, found)| !self.is_known(*at, found))
            .collect();
        if of_pool.is_empty() {
            return Ok(());
        }
        // What the journal has not seen may be in the pool.
        self.read(false)?;
        let pool = self.pool.take().unwrap_or_default();
        let mut left = Vec::new();
        for (at, found) in of_pool {
            let is_backed = self.journal.is_taken(at) || pool.entries.contains_key(&at);
            if !is_backed && self.may_collect(found)? {
                left.push((found.name.clone(), found.uid.clone()));
            }
        }
        delete_reservations(self.api, &left)
    }

    /// True if the journal has the entry of a reservation. An address of another node may have a
    /// reservation of this one, which its claim left or which was made too late.
    fn is_known(&self, at: u128, found: &Reserved) -> bool {
        let is_own = found
            .of
            .as_ref()
            .is_some_and(|(of, _)| *of == self.node.name);
        let has_entry = self.journal.own.contains_key(&at);
        self.journal.has_pool() && (has_entry || !is_own && self.journal.is_taken(at))
    }

    /// True if no request of the node that made a reservation can need it: the node is this one, which
    /// has the lock, or gone.
    fn may_collect(&mut self, found: &Reserved) -> Result<bool, Error> {
        let Some((node, _)) = found.of.as_ref().filter(|(of, _)| *of != self.node.name) else {
            return Ok(true);
        };
        let object = self.api.node(node);
        let object = object.map_err(|err| failed("read Node", node, &err))?;
        Ok(object.is_none())
    }

    /// Returns the offset of a reservation that was made for this pool.
    fn offset_of(&self, found: &Reserved) -> Option<u128> {
        let place = self.place;
        found.of.as_ref().filter(|(_, of)| *of == place.name)?;
        names::reserved_offset(&place.network, place.net, &found.name)
    }

    pub(super) fn reservation_name(&self, at: u128) -> Result<String, Error> {
        let address = self.address(at)?;
        Ok(names::reservation(&self.place.network, address))
    }
}
