//! Events about repairs: each is a moment, not a condition that lasts.

use super::{FORGOTTEN, Known, Post, SHORTEST, Warning, event};
use crate::cluster::node::Node;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Events that are kept to find repeats. Repeats of others are events of their own.
const MOST: usize = 256;

/// Published events about repairs.
#[derive(Debug, Default)]
pub struct RepairBook {
    known: BTreeMap<Warning, Known>,
}

impl RepairBook {
    /// Returns the events to publish on the Node: the events of `news`, and due series of earlier
    /// events. An event that was published a moment ago gets its series later.
    pub fn posts(&mut self, news: &[Warning], node: &Node, now: Timestamp) -> Vec<Post> {
        self.known
            .retain(|_, known| now.duration_since(known.posted) < FORGOTTEN);
        let mut posts = Vec::new();
        for one in news {
            if let Some(known) = self.known.get_mut(one) {
                known.count = known.count.saturating_add(1);
                continue;
            }
            let event = event(one, node, now);
            if self.known.len() >= MOST {
                self.known.clear();
            }
            let known = Known::new(event.clone(), now);
            self.known.insert(one.clone(), known);
            posts.push(Post { event });
        }
        let known = self.known.values_mut();
        posts.extend(known.filter_map(|known| known.series(now)));
        posts
    }

    /// Returns the time until all series are due; `None` if none waits.
    pub fn due(&self) -> Option<Duration> {
        let is_late = |known: &Known| known.count > known.counted;
        let is_any = self.known.values().any(is_late);
        is_any.then(|| SHORTEST.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Reason;

    #[test]
    fn a_repeated_repair_is_one_event_with_a_series() {
        let node = Node {
            name: "n1".into(),
            uid: "4f1c".into(),
            created: 0,
            ranges: Vec::new(),
            addresses: Vec::new(),
            is_network_unavailable: false,
            flannel: crate::cluster::flannel::Annotations::default(),
        };
        let news = Warning {
            reason: Reason::Repaired,
            note: "a route".into(),
        };
        let mut book = RepairBook::default();
        let mut posted = |news: &[Warning], seconds: i64| {
            let now = Timestamp::from_second(1000 + seconds).expect("a time");
            let posts = book.posts(news, &node, now);
            let mut found = Vec::new();
            for Post { event } in posts {
                let count = event.series.map_or(1, |series| series.count);
                found.push((event.type_.unwrap_or_default(), count));
            }
            (found, book.due().is_some())
        };
        let normal = |count| vec![("Normal".to_owned(), count)];
        let news = [news];
        assert_eq!(posted(&news, 0), (normal(1), false));
        assert_eq!(posted(&news, 1), (Vec::new(), true), "too early");
        assert_eq!(posted(&[], 11), (normal(2), false), "it is due");
        assert_eq!(posted(&news, 30), (normal(3), false));
        assert_eq!(posted(&news, 3600), (normal(1), false), "another event");
    }
}
