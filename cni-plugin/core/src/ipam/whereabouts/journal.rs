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
    /// Uid of the pool.
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
    pub fn read(&mut self, pool: &Pool, node: &Node) {
        let note = pool.annotation(&node.key()).map(str::to_owned);
        let written = note.as_deref().and_then(Note::parse);
        let is_earlier = written
            .as_ref()
            .is_some_and(|note| note.node.boot != node.boot);
        let before = self.seen.as_ref().map_or(0, |seen| seen.seq);
        let mut own = BTreeMap::new();
        self.taken.clear();
        for (offset, entry) in &pool.entries {
            let is_own = self.own.get(offset).is_some_and(|own| own.entry == *entry);
            // Of an earlier boot, or of a journal that was lost.
            let is_noted = written
                .as_ref()
                .is_some_and(|note| note.has(*offset, &entry.id));
            if is_own || is_noted {
                own.insert(*offset, entry.clone());
            }
            if is_noted && !is_own && is_earlier {
                // The container is gone with its boot, and the journal with it.
                let boot = written.as_ref().map(|note| note.node.boot.clone());
                let gone = Own {
                    entry: entry.clone(),
                    boot: boot.unwrap_or_default(),
                    state: State::Owed,
                    reservation: Reservation::Asked,
                    ..Own::default()
                };
                self.own.insert(*offset, gone);
            } else if !is_own {
                self.taken.insert(*offset);
            }
        }
        self.seen = Some(Seen {
            uid: pool.uid.clone(),
            seq: written.map_or(0, |note| note.seq).max(before),
            note,
            own,
            has_annotations: pool.annotations.is_some(),
            has_allocations: pool.has_allocations,
        });
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
        own.find(|(_, own)| own.state == State::Used && own.entry == *owner)
            .map(|(offset, _)| *offset)
    }

    /// True if another node, or another attachment of this one, has the address.
    pub fn is_taken(&self, offset: u128) -> bool {
        self.own.contains_key(&offset) || self.taken.contains(&offset)
    }

    /// Returns the entries that the pool must have of this node: those that are requested or used,
    /// and those of which only the node's annotation is known.
    pub fn wanted(&self) -> BTreeMap<u128, Entry> {
        let mut wanted = BTreeMap::new();
        for (offset, entry) in self.seen.iter().flat_map(|seen| &seen.own) {
            if !self.own.contains_key(offset) {
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
        self.own.values().any(is_owed) || seen != Some(&self.wanted())
    }
}
