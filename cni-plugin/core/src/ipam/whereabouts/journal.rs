//! The node's journal of a pool: addresses in use, requests and debts of this node. It is written
//! before each request, so that a call that is killed leaves no address without a trace.
//!
//! ```text
//!  Intent ─► Used ─► Owed ─► gone           an attachment's address
//!     │       ▲       ▲ │
//!     └───────│───────┘ │                   its ADD failed or was killed
//!   Holding ─► Held ────┘                   an address for the next pods
//!     ▲─────────────────┘
//! ```

use super::last::Last;
use super::names;
use super::others::Others;
use super::pool::{Entry, Node, Note, Pool};
use super::range::PoolRange;
use super::refused::Refused;
use super::waiting::WaitingList;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

/// Container id and interface of attachments.
pub type Sought = BTreeSet<(String, String)>;

/// The journal of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Journal {
    /// The pool; `None` before the first time.
    pub place: Option<Place>,
    /// Addresses of this node, by offset.
    pub own: BTreeMap<u128, Own>,
    /// Offsets of other nodes, as last read.
    pub taken: BTreeSet<u128>,
    /// The node's part of the pool, as last read or written; `None` before the first time.
    pub seen: Option<Seen>,
    /// Attachments that were removed and that this journal does not know: Whereabouts made them, or a
    /// journal that was lost had them.
    pub sought: Sought,
    /// Last addresses of pods of this node that are gone.
    pub last: Last,
    /// Addresses that another host on the link of a container had.
    pub refused: Refused,
    /// Range of the last ADD.
    pub range: Option<PoolRange>,
    /// Attachments with an ADD that waits for the lock of requests. The call that has the lock holds
    /// addresses for them too.
    pub waiting: WaitingList,
}

/// A pool, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Name of the object.
    pub name: String,
    /// Range of the pool.
    pub net: IpNet,
    /// `network_name`.
    pub network: String,
    /// True if addresses have reservations.
    pub has_reservations: bool,
    /// Kubeconfig.
    pub kubeconfig: PathBuf,
}

/// The node's part of a pool.
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent facts about a pool"
)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Uid of the pool; empty if it did not exist.
    pub uid: String,
    /// Text of the node's annotation, if the pool has one.
    pub note: Option<String>,
    /// Number of the node's last change.
    pub seq: u64,
    /// Entries of this node.
    pub own: BTreeMap<u128, Entry>,
    /// Entries of claims that this node's annotation does not name.
    pub claims: BTreeMap<u128, Entry>,
    /// Last addresses of pods of other nodes.
    pub last: Last,
    /// True if the pool has annotations, and a map of entries.
    pub has_annotations: bool,
    /// True if `spec.allocations` is a map.
    pub has_allocations: bool,
    /// Number of nodes with an annotation, this one included.
    pub nodes: usize,
    /// Number of those before this node, in the order of their keys.
    pub rank: usize,
    /// True if no node before this one, in the order of their keys, has entries.
    pub is_first: bool,
    /// Entries of others.
    pub others: Others,
    /// True if Whereabouts no longer uses the pool.
    pub is_exclusive: bool,
}

/// An address of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// Its entry.
    pub entry: Entry,
    /// Network of the attachment; empty if the pool does not tell that of an entry which a lost
    /// journal had.
    pub network: String,
    /// Key of the pod's last address, for a pod of a `StatefulSet`.
    #[serde(default)]
    pub pod: Option<String>,
    /// Boot in which it was assigned.
    pub boot: String,
    /// State.
    pub state: State,
    /// Reservation of the address.
    pub reservation: Reservation,
}

/// An attachment that asks for an address.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// Its entry.
    pub entry: &'a Entry,
    /// Its network.
    pub network: &'a str,
    /// Key of the pod's last address, for a pod of a `StatefulSet`.
    pub pod: Option<&'a str>,
    /// True if it takes no address that another host on a link had.
    pub avoids_refused: bool,
}

/// State of an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// An ADD requests it.
    #[default]
    Intent,
    /// An attachment has it.
    Used,
    /// Nothing uses it. The API server may still have it as used.
    Owed,
    /// The agent requests it, to hold it.
    Holding,
    /// The node holds it for its next pods.
    Held,
}

/// Reservation of an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reservation {
    /// None was requested.
    #[default]
    None,
    /// A request was sent.
    Asked,
    /// The object with this uid.
    Made(String),
}

impl Own {
    /// True if the pool must have it.
    fn is_wanted(&self) -> bool {
        self.state != State::Owed
    }
}

impl Journal {
    /// Takes in the pool as read from the API server, or as it answered to a change.
    ///
    /// Entries of the node's annotation that the journal does not know are in use if the journal was
    /// lost in this boot. Otherwise their containers are gone: with an earlier boot, or by a release
    /// that an older state of the pool, restored from a backup, does not have.
    ///
    /// `sought` are the attachments that were looked for when the request was sent. Returns true if the
    /// journal has an entry more. It must be written before the pool changes.
    pub fn read(&mut self, pool: &Pool, node: &Node, sought: &Sought) -> bool {
        let text = pool.annotation(&node.key()).map(str::to_owned);
        let note = text.as_deref().and_then(Note::parse);
        let held = Entry::held_by(node);
        let is_earlier = note.as_ref().is_some_and(|it| it.node.boot != node.boot);
        let is_lost = self.seen.is_none() && !is_earlier;
        let (mut own, mut claims) = (BTreeMap::new(), BTreeMap::new());
        self.sought.retain(|key| !sought.contains(key));
        let mut has_found = false;
        self.taken.clear();
        for (offset, entry) in &pool.entries {
            let is_noted = *entry == held
                || note
                    .as_ref()
                    .is_some_and(|note| note.has(*offset, &entry.id));
            if entry.claim().is_some() && !is_noted {
                claims.insert(*offset, entry.clone());
                // A claim that this node used has its address for itself again.
                self.own
                    .retain(|at, own| at != offset || own.entry != *entry || own.is_wanted());
                if self.own.get(offset).is_none_or(|own| own.entry != *entry) {
                    self.taken.insert(*offset);
                }
                continue;
            }
            let key = (entry.id.clone(), entry.ifname.clone());
            let is_sought = sought.contains(&key);
            match self.own.get_mut(offset) {
                Some(known) if known.entry == *entry => {
                    if known.state == State::Holding {
                        known.state = State::Held;
                    }
                }
                // An earlier entry of this node, which the next change replaces.
                Some(_) if is_noted => {}
                None if is_sought || is_noted => {
                    let is_used = is_lost && !is_sought && *entry != held;
                    let state = if is_used { State::Used } else { State::Owed };
                    self.own.insert(*offset, found(entry, state, note.as_ref()));
                    has_found = true;
                }
                _ => {
                    // An attachment of the journal has lost the address. It goes first.
                    if is_sought && self.own.contains_key(offset) {
                        self.sought.insert(key);
                    }
                    self.taken.insert(*offset);
                    continue;
                }
            }
            own.insert(*offset, entry.clone());
        }
        let before = self.seen.as_ref().map_or(0, |seen| seen.seq);
        let key = node.key();
        let notes: Vec<Note> = pool.notes().map(|(_, note)| note).collect();
        let others = notes.iter().map(|note| (note.node.key(), note));
        let others: Vec<_> = others.filter(|(other, _)| *other != key).collect();
        let before_this = others.iter().filter(|(other, _)| *other < key);
        let mut last = Last::default();
        for (_, other) in &others {
            last.extend(other.last.clone());
        }
        if let (None, Some(note)) = (&self.seen, &note) {
            self.last = note.last.clone();
        }
        self.seen = Some(Seen {
            uid: pool.uid.clone(),
            seq: note.map_or(0, |note| note.seq).max(before),
            note: text,
            own,
            claims,
            last,
            has_annotations: pool.annotations.is_some(),
            has_allocations: pool.has_allocations,
            nodes: others.len() + 1,
            rank: before_this.clone().count(),
            is_first: before_this.clone().all(|(_, note)| note.is_empty()),
            others: Others::count(pool, &notes, &self.taken),
            is_exclusive: pool.is_exclusive(),
        });
        has_found
    }

    /// Takes in that the pool does not exist. `sought` are the attachments that were looked for.
    pub fn lose_pool(&mut self, sought: &Sought) {
        self.seen = self.seen.take().map(|seen| Seen {
            seq: seen.seq,
            ..Seen::default()
        });
        self.taken.clear();
        self.sought.retain(|key| !sought.contains(key));
    }

    /// True if the pool existed when the node last looked.
    pub fn has_pool(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| !seen.uid.is_empty())
    }

    /// True if Whereabouts no longer used the pool when the node last looked.
    pub fn is_exclusive(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.is_exclusive)
    }

    /// Begins the work of a call or of the agent: requests of those that were killed, and addresses of
    /// an earlier boot, are owed.
    pub fn begin(&mut self, boot: &str) {
        for (offset, own) in &mut self.own {
            if matches!(own.state, State::Intent | State::Holding) || own.boot != boot {
                if let Some(pod) = own.pod.as_ref().filter(|_| own.state == State::Used) {
                    self.last.set(pod, *offset);
                }
                own.state = State::Owed;
            }
        }
    }

    /// Returns the offset that the attachment has.
    pub fn used_by(&self, owner: &Entry) -> Option<u128> {
        let mut own = self.own.iter();
        own.find(|(_, own)| own.state == State::Used && own.entry.is_of(&owner.id, &owner.ifname))
            .map(|(offset, _)| *offset)
    }

    /// True if the journal has an address of the attachment, in any state.
    pub fn knows(&self, owner: &Entry) -> bool {
        let mut own = self.own.values();
        own.any(|own| own.entry.is_of(&owner.id, &owner.ifname))
    }

    /// Returns the offset of a claim's address in a range, the `requested` one or any. This node may
    /// still owe the end of an earlier use.
    pub fn claimed(
        &self,
        claim: &Entry,
        range: &PoolRange,
        requested: Option<IpAddr>,
    ) -> Option<u128> {
        let net = self.place.as_ref()?.net;
        claim.claim()?;
        let own = self.own.iter().map(|(offset, own)| (offset, &own.entry));
        let own = own.filter(|(offset, _)| !self.taken.contains(offset));
        let mut all = own.chain(&self.seen.as_ref()?.claims);
        let found = all.find(|(offset, entry)| {
            *entry == claim && range.has(names::address(net, **offset), requested)
        });
        found.map(|(offset, _)| *offset)
    }

    /// True if another node, or another attachment of this one, has the address.
    pub fn is_taken(&self, offset: u128) -> bool {
        self.own.contains_key(&offset) || self.taken.contains(&offset)
    }

    /// True if the pool has another entry at an offset that an attachment of this node has. A pool that
    /// was restored from a backup may have one.
    pub fn has_lost(&self) -> bool {
        let own = self.own.iter();
        own.filter(|(_, own)| own.state == State::Used)
            .any(|(offset, _)| self.taken.contains(offset))
    }

    /// Returns the last address of a pod, unless it was refused.
    pub fn last_of(&self, pod: &str) -> Option<u128> {
        let of_others = || self.seen.as_ref()?.last.of(pod);
        let last = self.last.of(pod).or_else(of_others);
        last.filter(|at| !self.refused.has(*at))
    }

    /// Returns the last addresses of pods.
    pub fn last_offsets(&self) -> impl Iterator<Item = u128> {
        let of_others = self.seen.iter().flat_map(|seen| seen.last.offsets());
        self.last.offsets().chain(of_others)
    }

    /// True if it is the last address of a pod.
    pub fn is_last(&self, offset: u128) -> bool {
        self.last_offsets().any(|at| at == offset)
    }

    /// Gives an attachment one of the held addresses of a range, the `requested` one or the lowest, and
    /// returns its offset.
    pub fn take_held(
        &mut self,
        asker: Asker<'_>,
        boot: &str,
        range: &PoolRange,
        requested: Option<IpAddr>,
    ) -> Option<u128> {
        let net = self.place.as_ref()?.net;
        let refused = &self.refused;
        let (offset, own) = self.own.iter_mut().find(|(offset, own)| {
            let is_free = own.state == State::Held && own.boot == boot;
            let is_free = is_free && !(asker.avoids_refused && refused.has(**offset));
            is_free && range.has(names::address(net, **offset), requested)
        })?;
        own.entry = asker.entry.clone();
        asker.network.clone_into(&mut own.network);
        own.pod = asker.pod.map(str::to_owned);
        own.state = State::Used;
        Some(*offset)
    }

    /// Returns the number of addresses in this state.
    pub fn count(&self, state: State) -> usize {
        self.own.values().filter(|own| own.state == state).count()
    }

    /// Returns the entries that the pool must have of this node: all but those that are owed. An
    /// address is held only after it has its reservation.
    pub fn wanted(&self) -> BTreeMap<u128, Entry> {
        let own = self.own.iter().filter(|(offset, own)| match own.state {
            State::Owed => false,
            State::Holding if own.reservation == Reservation::Asked => false,
            State::Intent | State::Used | State::Holding | State::Held => {
                !self.taken.contains(offset)
            }
        });
        own.map(|(offset, own)| (*offset, own.entry.clone()))
            .collect()
    }

    /// Returns the network of the attachments; empty if they are of several.
    pub fn network(&self) -> &str {
        let used = |own: &&Own| matches!(own.state, State::Intent | State::Used);
        let mut networks = self.own.values().filter(used).map(|own| &*own.network);
        let first = networks.next().unwrap_or_default();
        if networks.all(|network| network == first) {
            first
        } else {
            ""
        }
    }

    /// Returns the owed addresses that the pool does not have.
    pub fn forgettable(&self) -> BTreeMap<u128, Own> {
        let seen = self.seen.as_ref();
        let is_in_pool = |offset: &u128, own: &Own| {
            seen.is_some_and(|seen| seen.own.get(offset) == Some(&own.entry))
        };
        let own = self.own.iter();
        own.filter(|(offset, own)| own.state == State::Owed && !is_in_pool(offset, own))
            .map(|(offset, own)| (*offset, own.clone()))
            .collect()
    }

    /// Removes owed addresses after their reservations.
    pub fn forget(&mut self, gone: &BTreeMap<u128, Own>) {
        let is_gone = |offset: &u128, own: &Own| {
            let of = gone.get(offset);
            own.state == State::Owed && of.is_some_and(|gone| gone.entry == own.entry)
        };
        self.own.retain(|offset, own| !is_gone(offset, own));
    }

    /// True if the pool differs from the journal.
    pub fn is_behind(&self) -> bool {
        let is_owed = |own: &Own| own.state == State::Owed;
        let seen = self.seen.as_ref().map(|seen| &seen.own);
        self.own.values().any(is_owed) || seen != Some(&self.wanted()) || !self.sought.is_empty()
    }
}

/// Returns the address of an entry that the journal did not know.
fn found(entry: &Entry, state: State, note: Option<&Note>) -> Own {
    Own {
        entry: entry.clone(),
        network: note.map(|note| note.network.clone()).unwrap_or_default(),
        pod: None,
        boot: note.map(|note| note.node.boot.clone()).unwrap_or_default(),
        state,
        reservation: Reservation::Asked,
    }
}
