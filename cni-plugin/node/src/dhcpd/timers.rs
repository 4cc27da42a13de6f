//! Timers of leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Timers of leases, as times since boot.
#[derive(Debug, Default)]
pub(super) struct Timers {
    order: BTreeSet<(Duration, u64)>,
    of: BTreeMap<u64, Duration>,
}

impl Timers {
    /// Sets the timer of a lease. `None` deletes the timer.
    pub(super) fn set(&mut self, id: u64, at: Option<Duration>) {
        if let Some(before) = self.of.remove(&id) {
            self.order.remove(&(before, id));
        }
        if let Some(at) = at {
            self.of.insert(id, at);
            self.order.insert((at, id));
        }
    }

    /// Returns the time of the earliest timer; `None` if there is no timer.
    pub(super) fn first(&self) -> Option<Duration> {
        let (at, _) = *self.order.first()?;
        Some(at)
    }

    /// Removes the earliest timer if its time is at most `now`, and returns its lease.
    pub(super) fn due(&mut self, now: Duration) -> Option<u64> {
        let (at, id) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.set(id, None);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_due_in_the_order_of_their_last_set_times() {
        let (mut timers, seconds) = (Timers::default(), Duration::from_secs);
        for (id, time) in [(1, 5), (2, 3), (3, 9), (1, 2)] {
            timers.set(id, Some(seconds(time)));
        }
        timers.set(3, None);
        assert_eq!(timers.first(), Some(seconds(2)));
        assert_eq!(
            [
                timers.due(seconds(3)),
                timers.due(seconds(3)),
                timers.due(seconds(99))
            ],
            [Some(1), Some(2), None]
        );
    }
}
