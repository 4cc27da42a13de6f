//! ADDs that wait for the lock of a pool's requests, and then have it.

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

/// The attachments of a pool that wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WaitingList(Vec<Waiting>);

impl WaitingList {
    /// Adds an attachment before its ADD waits for an address.
    pub fn add(&mut self, owner: &Entry, process: u32) {
        self.remove(owner);
        self.0.push(Waiting {
            entry: owner.clone(),
            process,
            is_released: false,
        });
    }

    /// Ends the wait of an attachment.
    pub fn remove(&mut self, owner: &Entry) {
        self.0.retain(|waiting| waiting.entry != *owner);
    }

    /// Ends the wait of the calls whose process does not run.
    pub fn keep(&mut self, is_running: &dyn Fn(u32) -> bool) {
        self.0.retain(|waiting| is_running(waiting.process));
    }

    /// Tells the ADD of an attachment that a DEL came meanwhile.
    pub fn release(&mut self, owner: &Entry) {
        for waiting in &mut self.0 {
            waiting.is_released |= waiting.entry == *owner;
        }
    }

    /// True if the attachment waits.
    pub fn has(&self, owner: &Entry) -> bool {
        self.0.iter().any(|waiting| waiting.entry == *owner)
    }

    /// True if a DEL of the attachment came while its ADD waits.
    pub fn is_released(&self, owner: &Entry) -> bool {
        let mut waiting = self.0.iter();
        waiting.any(|waiting| waiting.entry == *owner && waiting.is_released)
    }

    /// Returns the number of ADDs that wait for an address.
    pub fn count(&self) -> usize {
        let waiting = self.0.iter();
        waiting.filter(|waiting| !waiting.is_released).count()
    }
}
