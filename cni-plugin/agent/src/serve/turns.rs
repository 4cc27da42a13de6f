//! Order of what calls tell about a pod. Changes of one pod's status are written one after the other.
//! A status that could not be written at once is given up if a later ADD has one, or takes its own
//! back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync;

/// Turns of all pods.
#[derive(Debug, Default, Clone)]
pub(super) struct Turns(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    /// Newest turn of each pod, by its uid, while that turn lives.
    newest: BTreeMap<String, u64>,
    /// Lock of each pod that has a turn, by its uid.
    writers: BTreeMap<String, Weak<sync::Mutex<()>>>,
}

/// A turn of a pod.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    uid: String,
    number: u64,
    /// Held while the status of the pod is written. Waiting turns follow in their order.
    writer: Arc<sync::Mutex<()>>,
}

impl Turns {
    /// Begins the pod's next turn.
    pub(super) fn next(&self, uid: &str) -> Turn {
        self.next_in(&mut self.lock(), uid)
    }

    /// Begins a turn of the pod if no other one lives: no call is about to write its status.
    pub(super) fn if_idle(&self, uid: &str) -> Option<Turn> {
        let mut numbers = self.lock();
        let is_idle = !numbers.newest.contains_key(uid);
        is_idle.then(|| self.next_in(&mut numbers, uid))
    }

    fn next_in(&self, numbers: &mut Numbers, uid: &str) -> Turn {
        numbers.last += 1;
        let number = numbers.last;
        numbers.newest.insert(uid.to_owned(), number);
        let writer = numbers.writers.get(uid).and_then(Weak::upgrade);
        let writer = writer.unwrap_or_default();
        let writers = &mut numbers.writers;
        writers.insert(uid.to_owned(), Arc::downgrade(&writer));
        Turn {
            turns: self.clone(),
            uid: uid.to_owned(),
            number,
            writer,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// True if no later turn of the pod has begun.
    pub(super) fn is_newest(&self) -> bool {
        self.is_newest_of(&self.turns.lock())
    }

    /// Waits until no earlier turn of the pod writes.
    pub(super) async fn alone(&self) -> sync::MutexGuard<'_, ()> {
        self.writer.lock().await
    }

    fn is_newest_of(&self, numbers: &Numbers) -> bool {
        numbers.newest.get(&self.uid) == Some(&self.number)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut numbers = self.turns.lock();
        if self.is_newest_of(&numbers) {
            numbers.newest.remove(&self.uid);
        }
        if Arc::strong_count(&self.writer) == 1 {
            numbers.writers.remove(&self.uid);
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
        assert!(turns.if_idle("a").is_none() && turns.if_idle("b").is_some());
    }

    #[tokio::test]
    async fn turns_of_a_pod_write_one_after_the_other() {
        let turns = Turns::default();
        let [first, second, other] = ["a", "a", "b"].map(|uid| turns.next(uid));
        let held = first.alone().await;
        assert!(second.writer.try_lock().is_err());
        assert!(other.writer.try_lock().is_ok());
        // The newest turn ends while the first one still writes.
        drop(second);
        let third = turns.next("a");
        assert!(third.writer.try_lock().is_err());
        drop(held);
        assert!(third.writer.try_lock().is_ok());
        drop((first, third, other));
        assert!(turns.lock().writers.is_empty());
    }
}
