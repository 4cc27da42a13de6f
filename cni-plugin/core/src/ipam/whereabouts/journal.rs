//! The node's journal of a pool: addresses in use, requests and debts of this node. It is written
//! before each request, so that a call that is killed leaves no address without a trace.
//!
//! ```text
//!  Intent ─► Used ─► Owed ─► gone           an attachment's address
//!     └───────────────┘                     its ADD failed or was killed
//! ```

use super::pool::{Entry, Node, Note, Pool};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

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
    /// Container id and interface of attachments that were removed and that this journal does not
    /// know: Whereabouts made them, or a journal that was lost had them.
    pub sought: BTreeSet<(String, String)>,
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
    /// True if the pool has annotations, and a map of entries.
    pub has_annotations: bool,
    /// True if `spec.allocations` is a map.
    pub has_allocations: bool,
}

/// An address of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// Its entry.
    pub entry: Entry,
    /// Network of the attachment.
    pub network: String,
    /// Boot in which it was assigned.
    pub boot: String,
    /// State.
    pub state: State,
    /// Reservation of the address.
    pub reservation: Reservation,
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

impl Journal {
    /// Takes in the pool as read from the API server, or as it answered to a change.
    ///
    /// Entries of the node's annotation that the journal does not know are in use if the journal was
    /// lost in this boot. Otherwise their containers are gone: with an earlier boot, or by a release
    /// that an older state of the pool, restored from a backup, does not have.
    ///
    /// Returns true if the journal has an entry more. It must be written before the pool changes.
    pub fn read(&mut self, pool: &Pool, node: &Node) -> bool {
        let text = pool.annotation(&node.key()).map(str::to_owned);
        let note = text.as_deref().and_then(Note::parse);
        let is_earlier = note.as_ref().is_some_and(|it| it.node.boot != node.boot);
        let is_lost = self.seen.is_none() && !is_earlier;
        let (mut own, mut still_sought) = (BTreeMap::new(), BTreeSet::new());
        let known = self.own.len();
        self.taken.clear();
        for (offset, entry) in &pool.entries {
            let is_noted = note.as_ref().is_some_and(|it| it.has(*offset, &entry.id));
            let key = (entry.id.clone(), entry.ifname.clone());
            let is_sought = self.sought.contains(&key);
            match self.own.get(offset) {
                Some(known) if known.entry == *entry => {
                    own.insert(*offset, entry.clone());
                    continue;
                }
                None if is_sought || is_noted => {
                    let is_used = is_lost && !is_sought;
                    let state = if is_used { State::Used } else { State::Owed };
                    self.own.insert(*offset, found(entry, state, note.as_ref()));
                    own.insert(*offset, entry.clone());
                    continue;
                }
                // An attachment of the journal has lost the address. It goes first.
                Some(_) if is_sought => {
                    still_sought.insert(key);
                }
                Some(_) if is_noted => {
                    own.insert(*offset, entry.clone());
                }
                _ => {}
            }
            self.taken.insert(*offset);
        }
        self.sought = still_sought;
        let before = self.seen.as_ref().map_or(0, |seen| seen.seq);
        self.seen = Some(Seen {
            uid: pool.uid.clone(),
            seq: note.map_or(0, |note| note.seq).max(before),
            note: text,
            own,
            has_annotations: pool.annotations.is_some(),
            has_allocations: pool.has_allocations,
        });
        self.own.len() > known
    }

    /// Takes in that the pool does not exist.
    pub fn lose_pool(&mut self) {
        self.seen = self.seen.take().map(|seen| Seen {
            seq: seen.seq,
            ..Seen::default()
        });
        self.taken.clear();
        self.sought.clear();
    }

    /// True if the pool existed when the node last looked.
    pub fn has_pool(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| !seen.uid.is_empty())
    }

    /// Begins a call: intents of killed calls, and addresses of an earlier boot, are owed.
    pub fn begin(&mut self, boot: &str) {
        for own in self.own.values_mut() {
            if own.state == State::Intent || own.boot != boot {
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

    /// Returns the entries that the pool must have of this node: those that are requested or used,
    /// and those of its annotation that wait for another one of the same offset to go.
    pub fn wanted(&self) -> BTreeMap<u128, Entry> {
        let mut wanted = BTreeMap::new();
        for (offset, entry) in self.seen.iter().flat_map(|seen| &seen.own) {
            if self.own.get(offset).is_none_or(|own| own.entry != *entry) {
                wanted.insert(*offset, entry.clone());
            }
        }
        for (offset, own) in &self.own {
            if own.state != State::Owed && !self.taken.contains(offset) {
                wanted.insert(*offset, own.entry.clone());
            }
        }
        wanted
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
        network: String::new(),
        boot: note.map(|note| note.node.boot.clone()).unwrap_or_default(),
        state,
        reservation: Reservation::Asked,
    }
}
