//! Events about repairs: each is a moment, not a condition that lasts.

use super::{FORGOTTEN, Known, Post, Warning, event};
use crate::cluster::node::Node;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;

/// Events that are kept to find repeats. Repeats of others are events of their own.
const MOST: usize = 256;

/// Published events about repairs.
#[derive(Debug, Default)]
pub struct RepairBook {
    known: BTreeMap<Warning, Known>,
}

impl RepairBook {
    /// Returns the event to publish on the Node; `None` if an equal one was published a moment ago.
    pub fn post(&mut self, news: &Warning, node: &Node, now: Timestamp) -> Option<Post> {
        self.known
            .retain(|_, known| now.duration_since(known.posted) < FORGOTTEN);
        if let Some(known) = self.known.get_mut(news) {
            known.count = known.count.saturating_add(1);
            return known.series(now);
        }
        let event = event(news, node, now);
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let known = Known::new(event.clone(), now);
        self.known.insert(news.clone(), known);
        Some(Post { event })
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
        };
        let news = Warning {
            reason: Reason::Repaired,
            note: "a route".into(),
        };
        let mut book = RepairBook::default();
        let mut post = |seconds: i64| {
            let now = Timestamp::from_second(1000 + seconds).expect("a time");
            let event = book.post(&news, &node, now)?.event;
            let count = event.series.map_or(1, |series| series.count);
            Some((event.type_.unwrap_or_default(), count))
        };
        let normal = |count| Some(("Normal".to_owned(), count));
        assert_eq!(post(0), normal(1));
        assert_eq!(post(1), None, "too early");
        assert_eq!(post(11), normal(3));
        assert_eq!(post(3600), normal(1), "another event");
    }
}
