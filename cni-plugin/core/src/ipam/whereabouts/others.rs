//! Entries of a pool that are not this node's, by kind.

use super::pool::{Note, Pool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Entries by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Others {
    /// Number of entries of containers that braid attached.
    pub used: usize,
    /// Offsets that nodes hold for their next pods.
    pub held: BTreeSet<u128>,
    /// Number of entries of claims without a pod.
    pub claimed: usize,
    /// Number of entries that no annotation of a node names: Whereabouts made them.
    pub foreign: usize,
}

impl Others {
    /// Counts the entries at these offsets.
    pub(super) fn count(pool: &Pool, notes: &[Note], offsets: &BTreeSet<u128>) -> Self {
        let named: BTreeSet<(u128, &str)> = notes.iter().flat_map(Note::entries).collect();
        let mut others = Self::default();
        for offset in offsets {
            match pool.entries.get(offset) {
                Some(entry) if entry.is_held() => {
                    others.held.insert(*offset);
                }
                Some(entry) if named.contains(&(*offset, entry.short())) => others.used += 1,
                Some(entry) if entry.claim().is_some() => others.claimed += 1,
                Some(_) | None => others.foreign += 1,
            }
        }
        others
    }
}
