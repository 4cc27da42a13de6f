//! Addresses that a node could not use, as another host on the link of a container has them. The node
//! takes them after all others. No clock is read: an address leaves the list when the node takes it
//! again, or when newer ones have filled the list.

use serde::{Deserialize, Serialize};

/// Most addresses of a pool in the list.
const MOST: usize = 64;

/// Offsets of refused addresses, the newest at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Refused(Vec<u128>);

impl Refused {
    /// Adds an address.
    pub fn add(&mut self, offset: u128) {
        self.remove(offset);
        self.0.push(offset);
        let surplus = self.0.len().saturating_sub(MOST);
        self.0.drain(..surplus);
    }

    /// Removes an address.
    pub fn remove(&mut self, offset: u128) {
        self.0.retain(|at| *at != offset);
    }

    /// True if it has the address.
    pub fn has(&self, offset: u128) -> bool {
        self.0.contains(&offset)
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the addresses, the oldest first.
    pub fn offsets(&self) -> impl Iterator<Item = u128> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let mut refused = Refused::default();
        for offset in 0..70 {
            refused.add(offset);
        }
        refused.add(10);
        refused.remove(11);
        assert!(!refused.has(5) && refused.has(6) && !refused.has(11));
        let all: Vec<u128> = refused.offsets().collect();
        assert_eq!((all.len(), all[0], all[62]), (63, 6, 10));
    }
}
