//! Queue of pods whose networks may differ from their annotations.

use braid_core::k8s::ObjectName;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time after a change in which further changes of the same pod arrive.
const SETTLE: Duration = Duration::from_millis(50);
/// First and longest pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Pods that are changed at a time.
const MOST_AT_WORK: usize = 4;

/// Pods to compare.
#[derive(Debug, Default)]
pub struct Queue {
    pods: BTreeMap<ObjectName, Entry>,
}

#[derive(Debug)]
struct Entry {
    due: Instant,
    /// Pause before the next attempt, after a failure.
    pause: Option<Duration>,
    is_at_work: bool,
    /// True if the pod has changed since the work began.
    is_changed: bool,
}

impl Queue {
    /// Adds a pod that has changed. It is due soon, whatever has failed before.
    pub fn add(&mut self, pod: ObjectName, now: Instant) {
        let entry = self.pods.entry(pod).or_insert(Entry {
            due: now + SETTLE,
            pause: None,
            is_at_work: false,
            is_changed: false,
        });
        if entry.is_at_work {
            entry.is_changed = true;
        } else if entry.pause.take().is_some() {
            entry.due = now + SETTLE;
        }
    }

    /// Adds a pod that may differ. Does nothing for a pod that waits or is at work.
    pub fn add_unless_known(&mut self, pod: ObjectName, now: Instant) {
        if !self.pods.contains_key(&pod) {
            self.add(pod, now);
        }
    }

    /// Makes all pods due that wait after a failure, because a network has changed.
    pub fn hurry(&mut self, now: Instant) {
        for entry in self.pods.values_mut() {
            if entry.is_at_work {
                entry.is_changed = true;
            } else if entry.pause.is_some() {
                entry.due = entry.due.min(now + SETTLE);
            }
        }
    }

    /// Returns a pod that is due, and begins its work. `None` if none is due, or enough are at work.
    pub fn take(&mut self, now: Instant) -> Option<ObjectName> {
        let at_work = self.pods.values().filter(|entry| entry.is_at_work);
        if at_work.count() >= MOST_AT_WORK {
            return None;
        }
        let idle = self.pods.iter_mut().filter(|(_, entry)| !entry.is_at_work);
        let (pod, entry) = idle.min_by_key(|(_, entry)| entry.due)?;
        if entry.due > now {
            return None;
        }
        (entry.is_at_work, entry.is_changed) = (true, false);
        Some(pod.clone())
    }

    /// Ends the work on a pod. After a failure it is due again, after a pause that grows. Returns the
    /// pause.
    pub fn end(&mut self, pod: &ObjectName, has_failed: bool, now: Instant) -> Option<Duration> {
        let entry = self.pods.get_mut(pod)?;
        entry.is_at_work = false;
        if entry.is_changed {
            (entry.due, entry.pause) = (now, None);
            return None;
        }
        if !has_failed {
            self.pods.remove(pod);
            return None;
        }
        let pause = entry.pause.map_or(FIRST_PAUSE, |pause| pause * 2);
        let pause = pause.min(LONGEST_PAUSE);
        (entry.due, entry.pause) = (now + pause, Some(pause));
        Some(pause)
    }

    /// Returns the number of pods that wait or are at work.
    pub fn depth(&self) -> usize {
        self.pods.len()
    }

    /// Returns the time at which the next pod is due; `None` if none waits, or enough are at work.
    pub fn due(&self) -> Option<Instant> {
        let (at_work, idle): (Vec<_>, Vec<_>) =
            self.pods.values().partition(|entry| entry.is_at_work);
        if at_work.len() >= MOST_AT_WORK {
            return None;
        }
        idle.iter().map(|entry| entry.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> ObjectName {
        ObjectName {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn changes_of_a_moment_are_one_attempt_and_later_ones_are_another() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        for ms in [0, 10, 20] {
            queue.add(pod("a"), start + Duration::from_millis(ms));
        }
        assert_eq!(queue.take(start), None);
        let due = queue.due().expect("a pod waits");
        assert_eq!(due, start + SETTLE);
        assert_eq!(queue.take(due), Some(pod("a")));
        assert_eq!(queue.take(due), None, "it is at work");
        assert_eq!(queue.depth(), 1);
        queue.add(pod("a"), due);
        assert_eq!(queue.due(), None);
        assert_eq!(queue.end(&pod("a"), true, due), None);
        assert_eq!(queue.take(due), Some(pod("a")), "it has changed meanwhile");
        assert_eq!(queue.end(&pod("a"), false, due), None);
        assert_eq!(queue.due(), None);
    }

    #[test]
    fn a_failure_is_tried_again_after_pauses_that_grow_to_a_minute() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.add(pod("a"), now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            now = queue.due().expect("a pod waits");
            assert_eq!(queue.take(now), Some(pod("a")));
            let pause = queue.end(&pod("a"), true, now).expect("a pause");
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        queue.hurry(now);
        assert_eq!(queue.due(), Some(now + SETTLE));
        now += SETTLE;
        assert_eq!(queue.take(now), Some(pod("a")));
        let pause = queue.end(&pod("a"), true, now).expect("a pause");
        assert_eq!(pause, LONGEST_PAUSE, "the pod itself has not changed");
        queue.add(pod("a"), now);
        assert_eq!(queue.due(), Some(now + SETTLE));
        now += SETTLE;
        assert_eq!(queue.take(now), Some(pod("a")));
        assert_eq!(queue.end(&pod("a"), true, now), Some(FIRST_PAUSE));
    }

    #[test]
    fn a_pod_that_may_differ_ends_no_pause_and_repeats_no_work() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        queue.add_unless_known(pod("a"), start);
        let now = start + SETTLE;
        assert_eq!(queue.take(now), Some(pod("a")));
        queue.add_unless_known(pod("a"), now);
        assert_eq!(queue.end(&pod("a"), true, now), Some(FIRST_PAUSE));
        queue.add_unless_known(pod("a"), now);
        assert_eq!(queue.due(), Some(now + FIRST_PAUSE));
    }

    #[test]
    fn a_few_pods_are_at_work_at_a_time_the_longest_waiting_first() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        for (name, ms) in [("e", 0), ("d", 1), ("c", 2), ("b", 3), ("a", 4)] {
            queue.add(pod(name), start + Duration::from_millis(ms));
        }
        let now = start + Duration::from_secs(1);
        let taken: Vec<_> = std::iter::from_fn(|| queue.take(now)).collect();
        assert_eq!(taken, ["e", "d", "c", "b"].map(pod));
        assert_eq!(queue.due(), None);
        queue.end(&pod("c"), false, now);
        assert_eq!(queue.take(now), Some(pod("a")));
    }
}
