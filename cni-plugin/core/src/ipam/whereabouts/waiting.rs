//! ADDs that wait for the lock of a pool's requests, and then have it.

use super::journal::Journal;
use super::pool::Entry;
use serde::{Deserialize, Serialize};

/// An attachment with an ADD that has no address yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Its entry.
    pub entry: Entry,
    /// Process of the call.
    pub process: u32,
    /// True if a DEL of the attachment came meanwhile: the ADD must fail.
    #[serde(default)]
    pub is_released: bool,
}

impl Journal {
    /// Begins to wait for an address.
    pub fn wait(&mut self, owner: &Entry, process: u32) {
        self.stop_waiting(owner);
        self.waiting.push(Waiting {
            entry: owner.clone(),
            process,
            is_released: false,
        });
    }

    /// Ends the wait of an attachment.
    pub fn stop_waiting(&mut self, owner: &Entry) {
        self.waiting.retain(|waiting| waiting.entry != *owner);
    }

    /// Tells the ADD of an attachment that a DEL came meanwhile.
    pub(super) fn release_waiting(&mut self, owner: &Entry) {
        for waiting in &mut self.waiting {
            waiting.is_released |= waiting.entry == *owner;
        }
    }

    /// True if a DEL of the attachment came while its ADD waits.
    pub fn is_released(&self, owner: &Entry) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|waiting| waiting.entry == *owner && waiting.is_released)
    }

    /// Returns the number of ADDs that wait for an address.
    pub fn waiting(&self) -> usize {
        let waiting = self.waiting.iter();
        waiting.filter(|waiting| !waiting.is_released).count()
    }
}
