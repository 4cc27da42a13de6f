//! ADD: an address of a pool for an attachment. Each round decides on one step by the journal and the
//! pool as last read, and takes it.
//!
//! ```text
//!  next ─► Settle, Read, Fence, Again ─► next
//!       └► Try(address) ─► journal: Intent ─► reservation and pool ─► journal: Used
//!  no address: Refuse; a DEL of the attachment meanwhile: journal: Owed, and the ADD fails
//! ```

use super::requests::{failed, free_node};
use super::session::{Session, TRIES};
use braid_core::cni::{Error, Kind};
use braid_core::ipam::whereabouts::fence;
use braid_core::ipam::whereabouts::journal::{Asker, Journal, Own, Place, Reservation, State};
use braid_core::ipam::whereabouts::names::offset;
use braid_core::ipam::whereabouts::pool::Entry;
use braid_core::ipam::whereabouts::range::PoolRange;
use braid_core::ipam::whereabouts::steps;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Number of times that addresses with a reservation and without an entry are tried again.
const ROUNDS: usize = 5;
/// Number of free addresses from which one is chosen after a conflict.
const SPREAD: usize = 16;

/// Next step of an ADD.
enum Next {
    /// Bring the pool up to the journal.
    Settle,
    Read,
    /// Free the addresses of nodes that are gone.
    Fence,
    /// Try addresses again that had a reservation and no entry.
    Again,
    Refuse(Error),
    Try(u128, Own),
}

/// Steps of an ADD that are bounded.
#[derive(Clone, Copy, Default)]
struct SoFar {
    has_fenced: bool,
    /// Number of times that addresses with a reservation were tried again.
    rounds: usize,
}

impl Session<'_> {
    /// ADD: reserves an address for an attachment: the `requested` one, that of its claim, the last one
    /// of its pod, or the next free one. After an error the journal owes the address that may be reserved.
    pub fn reserve(
        &mut self,
        asker: Asker<'_>,
        range: &PoolRange,
        requested: Option<IpAddr>,
    ) -> Result<IpAddr, Error> {
        let (entry, pod) = (asker.entry, asker.pod);
        let boot = self.node.boot.clone();
        let mut found = None;
        self.update_for(asker, &mut |journal| {
            found = steps::take((journal, range, requested), asker, &boot);
        })?;
        if let Some(found) = found {
            return self.address(found);
        }
        // Another node may have used the claim since, or had the pod.
        let is_new = pod.is_some_and(|pod| self.journal.last_of(pod).is_none());
        if entry.claim().is_some() || is_new || !self.journal.has_pool() {
            self.read(true)?;
        }
        if steps::has_last(&self.journal, asker, range) && self.journal.is_behind() {
            self.settle()?;
        }
        let mut so_far = SoFar::default();
        for _ in 0..TRIES {
            match self.next(asker, range, requested, so_far) {
                // Addresses that the node owes are free after they are paid.
                Next::Settle => self.settle()?,
                Next::Read => self.read(true)?,
                Next::Fence => {
                    self.fence()?;
                    so_far.has_fenced = true;
                }
                Next::Again => {
                    self.refused.clear();
                    self.pool = None;
                    so_far.rounds += 1;
                }
                Next::Refuse(err) => return Err(err),
                Next::Try(at, own) => {
                    if self.enter(at, own, asker, range)? {
                        return self.address(at);
                    }
                }
            }
        }
        Err(self.busy())
    }

    /// Decides on the next step of an ADD by the journal and the pool as last read.
    fn next(
        &self,
        asker: Asker<'_>,
        range: &PoolRange,
        requested: Option<IpAddr>,
        so_far: SoFar,
    ) -> Next {
        let claimed = self.journal.claimed(asker.entry, range, requested);
        let candidate = || {
            let part = steps::part(&self.journal, range)?;
            self.candidate(&part, requested, asker)
        };
        if let Some(at) = claimed.or_else(candidate) {
            let mut own = self.own(asker, State::Intent);
            // Another node has made the reservation. A reservation of this node may be deleted already, so
            // it is requested again.
            let known = self.journal.own.get(&at).map(|own| &own.reservation);
            if claimed.is_some() && matches!(known, None | Some(Reservation::None)) {
                own.reservation = Reservation::None;
            }
            return Next::Try(at, own);
        }
        if self.journal.is_behind() {
            return Next::Settle;
        }
        if self.pool.is_none() {
            return Next::Read;
        }
        if let Some(err) = steps::too_far(&self.journal, range, requested) {
            return Next::Refuse(err);
        }
        if !so_far.has_fenced {
            return Next::Fence;
        }
        // A reservation may be of a call that does not get the address, and goes.
        if !self.refused.is_empty() && so_far.rounds < ROUNDS {
            return Next::Again;
        }
        Next::Refuse(self.full(range, requested))
    }

    /// Enters an address into the pool, with addresses to hold for the calls that wait. Returns false
    /// if another attachment has it.
    fn enter(
        &mut self,
        at: u128,
        own: Own,
        asker: Asker<'_>,
        range: &PoolRange,
    ) -> Result<bool, Error> {
        let part = steps::part(&self.journal, range).unwrap_or_else(|| range.clone());
        let mut new = self.for_others(at, &part);
        new.insert(at, own);
        self.update_for(asker, &mut |journal| {
            journal.range = Some(part.clone());
            journal.taken.remove(&at);
            steps::use_up(journal, asker.pod, at);
            journal.own.extend(new.clone());
        })?;
        let refused = if self.may_enter_at_once(asker) {
            self.enter_at_once(&new)?
        } else {
            self.refused_of(&new)?
        };
        if refused.contains(&at) {
            // Other nodes have changed the pool since this one has read it.
            self.read(true)?;
            return Ok(false);
        }
        if self.journal.is_behind() {
            self.settle()?;
        }
        let is_entered = self.has_entry(at, asker.entry);
        let mut is_wanted = false;
        self.update_for(asker, &mut |journal| {
            is_wanted = steps::end_intent(journal, asker.entry, at, is_entered);
        })?;
        if !is_wanted {
            return Err(released(asker.entry));
        }
        self.conflicts += usize::from(!is_entered);
        Ok(is_entered)
    }

    /// True if an address may be in the pool before it is reserved. After a conflict, the nodes that want
    /// it could give way to each other again and again. The entry of a claim would stay.
    fn may_enter_at_once(&self, asker: Asker<'_>) -> bool {
        let has_both = self.place.has_reservations && self.journal.has_pool();
        has_both && self.conflicts == 0 && asker.entry.claim().is_none()
    }

    /// Changes the journal in one step, unless a DEL of the attachment came since its ADD began. The
    /// journal owes the address then.
    fn update_for(
        &mut self,
        asker: Asker<'_>,
        change: &mut dyn FnMut(&mut Journal),
    ) -> Result<(), Error> {
        let mut is_released = false;
        self.update(&mut |journal| {
            is_released = journal.waiting.is_released(asker.entry);
            if is_released {
                journal.waiting.remove(asker.entry);
            } else {
                change(journal);
            }
        })?;
        if is_released {
            return Err(released(asker.entry));
        }
        Ok(())
    }

    /// Returns free addresses for the other calls that wait.
    fn for_others(&self, at: u128, range: &PoolRange) -> BTreeMap<u128, Own> {
        // One of them is this call.
        let others = self.journal.waiting.count().saturating_sub(1);
        let others = others.saturating_sub(steps::held(&self.journal));
        self.to_hold(range, others, Some(at))
    }

    /// Returns the address to try next: the pod's last one, or the node's first free one. After a conflict it is one of the
    /// next few, since the node that was faster goes on from there too.
    fn candidate(
        &self,
        range: &PoolRange,
        requested: Option<IpAddr>,
        asker: Asker<'_>,
    ) -> Option<u128> {
        let is_taken = |address: IpAddr| self.is_taken(address);
        let last = steps::last(&self.journal, asker, range).filter(|last| !is_taken(*last));
        let free = if let Some(requested) = requested.or(last) {
            Some(requested).filter(|address| range.contains(*address) && !is_taken(*address))
        } else {
            let number = if self.conflicts == 0 { 1 } else { SPREAD };
            let next: Vec<IpAddr> = steps::free(&self.journal, range, is_taken)
                .filter(|ip| !asker.avoids_refused || !self.is_refused(*ip))
                .take(number)
                .collect();
            let chosen = spread(&asker.entry.id, self.conflicts) % next.len().max(1);
            next.get(chosen).copied()
        };
        offset(self.place.net, free?)
    }

    /// True if another host on a link had the address.
    fn is_refused(&self, address: IpAddr) -> bool {
        let at = offset(self.place.net, address);
        at.is_some_and(|at| self.journal.refused.has(at))
    }

    /// Frees the addresses of nodes that are gone, in the pool as last read.
    pub(super) fn fence(&mut self) -> Result<(), Error> {
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
            let Place {
                name, net, network, ..
            } = self.place;
            free_node(self.api, (name, *net, &[network]), &pool, (text, &note))?;
        }
        Ok(())
    }

    fn full(&self, range: &PoolRange, requested: Option<IpAddr>) -> Error {
        let name = &self.place.name;
        let seen = self.journal.seen.clone().unwrap_or_default();
        // The nodes that hold addresses give them back when they see that none is left.
        let is_held = |ip: IpAddr| {
            offset(self.place.net, ip).is_some_and(|at| seen.others.held.contains(&at))
        };
        let kind = |is_held| {
            if is_held {
                Kind::TryAgain
            } else {
                Kind::NoFreeAddress
            }
        };
        if let Some(requested) = requested {
            let is_held = is_held(requested);
            let by = if is_held {
                "held by another node"
            } else {
                "in use"
            };
            let why = format!("IPPool {name}: address {requested} is {by}");
            return Error::new(kind(is_held), why);
        }
        let entries = self.journal.taken.len() + self.journal.own.len();
        let (held, claimed) = (seen.others.held.len(), seen.others.claimed);
        let why = format!(
            "no address of {}-{} is free: IPPool {name} has {} in use, {held} held for next pods and \
             {claimed} of claims without a pod; {} are reserved by other pools or without an entry, and \
             {} entries of exclude are left out",
            range.first,
            range.last,
            entries.saturating_sub(held + claimed),
            self.refused.len(),
            range.exclude.len(),
        );
        Error::new(kind(held > 0), why)
    }
}

/// Returns the error of an ADD whose attachment was released meanwhile.
pub(super) fn released(entry: &Entry) -> Error {
    let Entry { id, ifname, .. } = entry;
    let why = format!("container {id} {ifname}: a DEL released its addresses during this ADD");
    Error::internal(why)
}

/// Returns a number that differs between containers, and from one conflict to the next.
fn spread(id: &str, conflicts: usize) -> usize {
    let step = |sum: usize, byte: u8| sum.wrapping_mul(31).wrapping_add(usize::from(byte));
    id.bytes().fold(conflicts, step)
}
