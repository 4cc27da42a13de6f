//! Order of what calls tell about a pod. A status that could not be written at once is given up if a
//! later ADD or DEL tells something else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Turns of all pods.
#[derive(Debug, Default, Clone)]
pub(super) struct Turns(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    /// Newest turn of each pod, by its uid, while that turn lives.
    newest: BTreeMap<String, u64>,
}

/// A turn of a pod.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    uid: String,
    number: u64,
}

impl Turns {
    /// Begins the pod's next turn.
    pub(super) fn next(&self, uid: &str) -> Turn {
        let mut numbers = self.lock();
        numbers.last += 1;
        let number = numbers.last;
        numbers.newest.insert(uid.to_owned(), number);
        Turn {
            turns: self.clone(),
            uid: uid.to_owned(),
            number,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// True if no later turn of the pod has begun.
    pub(super) fn is_newest(&self) -> bool {
        self.turns.lock().newest.get(&self.uid) == Some(&self.number)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut numbers = self.turns.lock();
        if numbers.newest.get(&self.uid) == Some(&self.number) {
            numbers.newest.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_turn_of_a_pod_goes_on_and_none_is_kept() {
        let turns = Turns::default();
        let [first, other] = ["a", "b"].map(|uid| turns.next(uid));
        assert!(first.is_newest() && other.is_newest());
        let second = turns.next("a");
        assert!(!first.is_newest() && second.is_newest());
        drop((second, other));
        assert!(turns.lock().newest.is_empty());
        let third = turns.next("a");
        assert!(!first.is_newest() && third.is_newest());
        drop(first);
        assert!(third.is_newest());
    }
}
