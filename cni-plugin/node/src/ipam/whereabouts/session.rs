//! Requests about one pool, under its lock for requests. The journal is changed in single steps, as
//! other calls take held addresses and release used ones meanwhile.
//!
//! ```text
//!  reserve: candidate ─► journal: Intent ─► POST reservation, PATCH pool ─► journal: Used
//!           both at the same time, and addresses to hold for the calls that wait;
//!           after a conflict one after the other
//!  release: journal: Owed ─► PATCH pool ─► DELETE reservation ─► journal: gone
//!  tend:    journal: Holding ─► POST reservations ─► PATCH pool ─► journal: Held
//!  a test of the PATCH fails: GET pool ─► journal compared with it ─► again
//!  no address is free: GET the Nodes of the pool ─► PATCH pool without the entries of those gone
//! ```

use super::requests::failed;
use braid_core::cni::{Error, Kind};
use braid_core::ipam::whereabouts::api::{Api, Failure, Store};
use braid_core::ipam::whereabouts::change::patch;
use braid_core::ipam::whereabouts::journal::{
    Asker, Journal, Own, Place, Reservation, Sought, State,
};
use braid_core::ipam::whereabouts::names::{address, offset};
use braid_core::ipam::whereabouts::pool::{Entry, Node, Pool};
use braid_core::ipam::whereabouts::range::PoolRange;
use braid_core::ipam::whereabouts::steps;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Largest number of changes for one call. Each further one follows a change by another node.
pub(super) const TRIES: usize = 100;

/// Work on a pool.
pub struct Session<'a> {
    pub(super) place: &'a Place,
    pub(super) node: &'a Node,
    pub(super) api: &'a mut dyn Api,
    store: &'a mut dyn Store,
    /// The journal after the last step.
    pub(super) journal: Journal,
    /// Uids of reservations that the journal does not have yet, by offset.
    pub(super) reserved: BTreeMap<u128, String>,
    /// The pool, as last read.
    pub(super) pool: Option<Pool>,
    /// Addresses with a reservation of another pool.
    pub(super) refused: BTreeSet<u128>,
    /// Number of addresses that another node was faster to take.
    pub(super) conflicts: usize,
}

impl<'a> Session<'a> {
    /// Reads the journal. Requests of calls that were killed are owed.
    pub fn open(
        place: &'a Place,
        node: &'a Node,
        api: &'a mut dyn Api,
        store: &'a mut dyn Store,
    ) -> Result<Self, Error> {
        let journal = store.update(&mut |journal| {
            journal.begin(&node.boot);
            journal.place = Some(place.clone());
        })?;
        Ok(Self {
            place,
            node,
            api,
            store,
            journal,
            reserved: BTreeMap::new(),
            pool: None,
            refused: BTreeSet::new(),
            conflicts: 0,
        })
    }

    /// Pays the node's debts: brings the pool's entries of this node up to the journal.
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
        Ok(())
    }

    /// Holds so many addresses of the range of the last ADD for the node's next pods, or gives back
    /// those beyond, and pays. Owed addresses are held first: they have their reservations.
    pub fn tend(&mut self, target: usize) -> Result<(), Error> {
        let (node, net) = (self.node.clone(), self.place.net);
        self.update(&mut |journal| steps::adjust(journal, &node, net, target))?;
        let missing = target.saturating_sub(steps::held(&self.journal));
        let range = self.journal.range.clone().filter(|_| missing > 0);
        if let Some(range) = range.filter(|_| self.journal.has_pool()) {
            self.hold(&range, missing)?;
            // With its reservation, an address can be held.
            self.update(&mut |_| {})?;
        }
        self.pay()
    }

    /// Ends the wait of calls without a process. Without an agent, then gives back held addresses
    /// for which no call waits.
    pub fn judge_waiting(
        &mut self,
        is_running: &dyn Fn(u32) -> bool,
        has_agent: bool,
    ) -> Result<(), Error> {
        let (node, net) = (self.node.clone(), self.place.net);
        self.update(&mut |journal| {
            journal.waiting.keep(is_running);
            let waiting = journal.waiting.count();
            if !has_agent && steps::held(journal) > waiting {
                steps::adjust(journal, &node, net, waiting);
            }
        })
    }

    pub(super) fn to_hold(
        &self,
        range: &PoolRange,
        number: usize,
        but: Option<u128>,
    ) -> BTreeMap<u128, Own> {
        let net = self.place.net;
        let is_taken = |address| self.is_taken(address) || offset(net, address) == but;
        let held = Entry::held_by(self.node);
        let asker = Asker {
            entry: &held,
            network: "",
            pod: None,
            avoids_refused: false,
        };
        let own = self.own(asker, State::Holding);
        let free = steps::free(&self.journal, range, is_taken).take(number);
        free.filter_map(|address| Some((offset(net, address)?, own.clone())))
            .collect()
    }

    fn hold(&mut self, range: &PoolRange, number: usize) -> Result<(), Error> {
        let new = self.to_hold(range, number, None);
        self.update(&mut |journal| journal.own.extend(new.clone()))?;
        self.refused_of(&new).map(drop)
    }

    pub(super) fn own(&self, asker: Asker<'_>, state: State) -> Own {
        Own {
            entry: asker.entry.clone(),
            network: asker.network.to_owned(),
            pod: asker.pod.map(str::to_owned),
            boot: self.node.boot.clone(),
            state,
            reservation: if self.place.has_reservations {
                Reservation::Asked
            } else {
                Reservation::None
            },
        }
    }

    /// Changes the journal in one step.
    pub(super) fn update(&mut self, change: &mut dyn FnMut(&mut Journal)) -> Result<(), Error> {
        let reserved = &self.reserved;
        self.journal = self.store.update(&mut |journal| {
            for (at, uid) in reserved {
                if let Some(own) = journal.own.get_mut(at) {
                    own.reservation = Reservation::Made(uid.clone());
                }
            }
            change(journal);
        })?;
        self.reserved.clear();
        Ok(())
    }

    pub(super) fn is_taken(&self, address: IpAddr) -> bool {
        let at = offset(self.place.net, address);
        at.is_none_or(|at| self.journal.is_taken(at) || self.refused.contains(&at))
    }

    /// Makes the pool's entries of this node those of the journal. Then deletes the reservations of
    /// addresses that are owed.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        for _ in 0..TRIES {
            if !self.reserved.is_empty() {
                self.update(&mut |_| {})?;
            }
            let wanted = self.journal.wanted();
            if !self.journal.has_pool() {
                if wanted.is_empty() {
                    return self.forget();
                }
                self.read(true)?;
            }
            let patch = self.patch(&wanted);
            let sought = self.journal.sought.clone();
            let changed = self.api.change_pool(&self.place.name, &patch);
            if self.take_in_change(changed, &sought)? {
                return Ok(());
            }
        }
        Err(self.busy())
    }

    /// Returns the change after which the pool has these entries of this node.
    pub(super) fn patch(&self, wanted: &BTreeMap<u128, Entry>) -> Value {
        let seen = self.journal.seen.clone().unwrap_or_default();
        let more = (&self.journal.last, self.journal.network());
        patch(&seen, self.node, wanted, more)
    }

    /// Takes in the answer to a change, with the attachments that were looked for when it was sent.
    /// Returns true if the pool is the journal's then.
    pub(super) fn take_in_change(
        &mut self,
        changed: Result<Pool, Failure>,
        sought: &Sought,
    ) -> Result<bool, Error> {
        match changed {
            Ok(pool) => Ok(!self.take_in(&pool, sought)?),
            Err(Failure::Unfit | Failure::Missing) => {
                self.read(!self.journal.wanted().is_empty())?;
                // The change was made, and its answer was lost; or another node was faster.
                Ok(!self.journal.is_behind())
            }
            Err(err) => Err(failed("change IPPool", &self.place.name, &err)),
        }
    }

    /// Takes in the pool after a change, and forgets entries that it no longer has: none of this node's
    /// changes that were given up can still be carried out, as all test the annotation's earlier text.
    /// Returns true if the pool has entries of this node that the journal did not know.
    pub(super) fn take_in(&mut self, pool: &Pool, sought: &Sought) -> Result<bool, Error> {
        let (node, mut has_found) = (self.node, false);
        self.update(&mut |journal| has_found = journal.read(pool, node, sought))?;
        self.forget()?;
        Ok(has_found)
    }

    /// Deletes the reservations of owed addresses that the pool no longer has. The journal says so before:
    /// they can't be held again.
    fn forget(&mut self) -> Result<(), Error> {
        let gone = self.journal.forgettable();
        if gone.is_empty() {
            return Ok(());
        }
        self.end_reservations(&gone)?;
        self.update(&mut |journal| journal.forget(&gone))
    }

    /// Reads the pool. If it does not exist, it is made, or else the journal takes this in.
    pub(super) fn read(&mut self, is_needed: bool) -> Result<(), Error> {
        let name = &self.place.name;
        let mut pool = self.api.pool(name);
        if is_needed && pool == Ok(None) {
            pool = match self.api.create_pool(name, self.place.net) {
                // Another node was faster.
                Err(Failure::Exists) => self.api.pool(name),
                made => made.map(Some),
            };
        }
        let (node, sought) = (self.node, self.journal.sought.clone());
        match pool {
            Ok(Some(pool)) => {
                self.update(&mut |journal| {
                    journal.read(&pool, node, &sought);
                })?;
                self.pool = Some(pool);
                Ok(())
            }
            Ok(None) if is_needed => Err(failed("create IPPool", name, &Failure::Missing)),
            Ok(None) => self.update(&mut |journal| journal.lose_pool(&sought)),
            Err(err) => Err(failed("read IPPool", name, &err)),
        }
    }

    pub(super) fn has_entry(&self, at: u128, entry: &Entry) -> bool {
        let seen = self.journal.seen.as_ref();
        seen.is_some_and(|seen| seen.own.get(&at) == Some(entry))
    }

    pub(super) fn address(&self, at: u128) -> Result<IpAddr, Error> {
        let net = self.place.net;
        address(net, at).ok_or_else(|| {
            Error::internal(format!(
                "IPPool {}: offset {at} is outside",
                self.place.name
            ))
        })
    }

    pub(super) fn busy(&self) -> Error {
        let why = format!(
            "IPPool {}: other nodes changed it during each of {TRIES} attempts",
            self.place.name
        );
        Error::new(Kind::TryAgain, why)
    }
}
