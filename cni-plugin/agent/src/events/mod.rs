//! Events on the Node, on pods and on networks: which ones are published when, and the requests for them.
//!
//! A warning with the same reason and text is one event. If it comes back, or lasts, the event gets a
//! series. So does an event of a pod that calls repeat.

pub mod networks;
pub mod pools;
pub mod publisher;
pub mod repairs;

use crate::cluster::node::Node;
use braid_core::k8s::ObjectName;
use braid_core::k8s::source::{Event as PodEvent, Severity, TRACE_ANNOTATION};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Namespace of the events of objects that have none.
const NAMESPACE: &str = "default";
/// Name of the program in its events.
const CONTROLLER: &str = "braid";
const ACTION: &str = "Reconcile";
/// Action of events about pods.
const ATTACH: &str = "Attach";
/// Longest text that the API server accepts, in bytes.
const LONGEST_NOTE: usize = 1024;
/// Longest part of an event's name that is the node's name. The API server accepts 253 bytes.
const LONGEST_NAME: usize = 200;
/// Shortest time between two requests for one event.
pub(crate) const SHORTEST: SignedDuration = SignedDuration::from_secs(10);
/// Time after which a warning that lasts is counted again.
const LASTS: SignedDuration = SignedDuration::from_mins(5);
/// Time after which a warning that is over is forgotten, so that the next one is another event.
const FORGOTTEN: SignedDuration = SignedDuration::from_mins(30);
/// New events at a time. Others follow at the next comparison.
const MOST: usize = 20;
/// Events of pods that are kept to find repeats, of some 2 KiB each.
const MOST_OF_PODS: usize = 256;

/// A condition that needs an administrator, or a repair.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// Word for programs.
    pub reason: Reason,
    /// Sentence for people.
    pub note: String,
}

/// Reason of an event on the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A range of another Node gets no route.
    IgnoredRange,
    /// The configuration is wrong.
    InvalidConfiguration,
    /// The Node has no pod range.
    NoPodRange,
    /// The node has a network of another program.
    ForeignNetwork,
    /// Links of the node are not offered as devices.
    NotOffered,
    /// A lost object was restored.
    Repaired,
    /// A lost object is restored after a pause, because another program deletes it again and again.
    RepairPaused,
}

impl Reason {
    fn word(self) -> &'static str {
        match self {
            Self::IgnoredRange => "IgnoredPodRange",
            Self::InvalidConfiguration => "InvalidConfiguration",
            Self::NoPodRange => "NoPodRange",
            Self::ForeignNetwork => "ForeignNetwork",
            Self::NotOffered => "DevicesNotOffered",
            Self::Repaired => "Repaired",
            Self::RepairPaused => "RepairPaused",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Repaired => "Normal",
            Self::IgnoredRange
            | Self::InvalidConfiguration
            | Self::NoPodRange
            | Self::ForeignNetwork
            | Self::NotOffered
            | Self::RepairPaused => "Warning",
        }
    }
}

/// An event to publish: a new one, or one more of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Post {
    event: Event,
}

/// Published events.
#[derive(Debug, Default)]
pub struct Book {
    known: BTreeMap<Warning, Known>,
}

#[derive(Debug)]
struct Known {
    /// The event without a series.
    event: Event,
    count: i32,
    counted: i32,
    posted: Timestamp,
    is_present: bool,
}

impl Known {
    fn new(event: Event, now: Timestamp) -> Self {
        Self {
            event,
            count: 1,
            counted: 1,
            posted: now,
            is_present: true,
        }
    }

    /// Returns the series, if it is due.
    fn series(&mut self, now: Timestamp) -> Option<Post> {
        if self.count <= self.counted || now.duration_since(self.posted) < SHORTEST {
            return None;
        }
        (self.counted, self.posted) = (self.count, now);
        let mut event = self.event.clone();
        event.series = Some(EventSeries {
            count: self.count,
            last_observed_time: MicroTime(now),
        });
        Some(Post { event })
    }
}

impl Book {
    /// Returns the events to publish, if `present` are the warnings of `node` now.
    pub fn posts(&mut self, present: &BTreeSet<Warning>, node: &Node, now: Timestamp) -> Vec<Post> {
        let mut posts = Vec::new();
        for warning in present {
            if let Some(known) = self.known.get_mut(warning) {
                if !known.is_present || now.duration_since(known.posted) >= LASTS {
                    known.count = known.count.saturating_add(1);
                }
                known.is_present = true;
            } else if posts.len() < MOST {
                let known = Known::new(event(warning, node, now), now);
                posts.push(Post {
                    event: known.event.clone(),
                });
                self.known.insert(warning.clone(), known);
            }
        }
        for (warning, known) in &mut self.known {
            known.is_present = present.contains(warning);
            posts.extend(known.series(now));
        }
        self.known
            .retain(|_, known| known.is_present || now.duration_since(known.posted) < FORGOTTEN);
        posts
    }
}

fn event(warning: &Warning, node: &Node, now: Timestamp) -> Event {
    let text = Text {
        action: ACTION,
        kind: warning.reason.kind(),
        reason: warning.reason.word(),
        note: &warning.note,
    };
    let regarding = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.clone()),
        uid: Some(node.uid.clone()),
        ..ObjectReference::default()
    };
    text.event(regarding, &node.name, now)
}

/// Words of an event.
struct Text<'a> {
    action: &'a str,
    kind: &'a str,
    reason: &'a str,
    note: &'a str,
}

impl Text<'_> {
    /// Returns the event about an object, by this node.
    fn event(&self, regarding: ObjectReference, node: &str, now: Timestamp) -> Event {
        let about = regarding.name.as_deref().unwrap_or_default();
        let name = cut(about, LONGEST_NAME);
        // The time alone is not unique: several events are made at once.
        let name = format!(
            "{name}.{:x}{:08x}",
            now.as_millisecond(),
            hash(self.note) ^ hash(self.reason)
        );
        let namespace = regarding.namespace.as_deref().unwrap_or(NAMESPACE);
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            action: Some(self.action.to_owned()),
            reason: Some(self.reason.to_owned()),
            note: Some(cut(self.note, LONGEST_NOTE).to_owned()),
            type_: Some(self.kind.to_owned()),
            event_time: Some(MicroTime(now)),
            regarding: Some(regarding),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(cut(node, 128).to_owned()),
            ..Event::default()
        }
    }
}

/// Events of pods that calls have reported.
#[derive(Debug, Default)]
pub struct PodBook {
    /// By uid of the pod, reason and note.
    known: BTreeMap<(String, String, String), Known>,
}

impl PodBook {
    /// Returns the event to publish; `None` if it has been published a moment ago: then its series is
    /// [due](Self::due) later. `node` is the name of this node.
    pub fn post(
        &mut self,
        pod: &ObjectName,
        uid: &str,
        event: &PodEvent,
        (node, now): (&str, Timestamp),
    ) -> Option<Post> {
        self.known
            .retain(|_, known| now.duration_since(known.posted) < FORGOTTEN);
        let reason = event.reason.clone().into_owned();
        let trace = event.trace.as_ref();
        let key = (uid.to_owned(), reason, event.message.clone());
        if let Some(known) = self.known.get_mut(&key) {
            known.count = known.count.saturating_add(1);
            return known.series(now);
        }
        let text = Text {
            action: ATTACH,
            kind: match event.severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            },
            reason: &event.reason,
            note: &event.message,
        };
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let mut event = text.event(regarding, node, now);
        if let Some(trace) = trace {
            let annotation = (TRACE_ANNOTATION.to_owned(), trace.to_string());
            event.metadata.annotations = Some(BTreeMap::from([annotation]));
        }
        if self.known.len() >= MOST_OF_PODS {
            self.forget_oldest();
        }
        self.known.insert(key, Known::new(event.clone(), now));
        Some(Post { event })
    }

    /// Forgets the event that was published first. A repeat becomes an event of its own.
    fn forget_oldest(&mut self) {
        let oldest = self.known.iter().min_by_key(|(_, known)| known.posted);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.known.remove(&key);
        }
    }

    /// Returns the series of events that were repeated a moment after they were published.
    pub fn due(&mut self, now: Timestamp) -> Vec<Post> {
        let known = self.known.values_mut();
        known.filter_map(|known| known.series(now)).collect()
    }
}

/// FNV-1a.
fn hash(text: &str) -> u32 {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    text.bytes().fold(2_166_136_261, mix)
}

/// Returns the start of a text, at most `longest` bytes.
fn cut(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::flannel::Annotations;

    fn node() -> Node {
        Node {
            name: "n1".into(),
            uid: "4f1c".into(),
            created: 0,
            ranges: Vec::new(),
            addresses: Vec::new(),
            is_network_unavailable: false,
            flannel: Annotations::default(),
        }
    }

    fn warning(note: &str) -> Warning {
        Warning {
            reason: Reason::NoPodRange,
            note: note.into(),
        }
    }

    /// Returns name and count of each event that is due `seconds` after the start.
    fn posted(book: &mut Book, notes: &[&str], seconds: i64) -> Vec<(String, i32)> {
        let present = notes.iter().map(|note| warning(note)).collect();
        let now = Timestamp::from_second(1000 + seconds).expect("a time");
        let count = |event: &Event| event.series.as_ref().map_or(1, |series| series.count);
        let posts = book.posts(&present, &node(), now);
        let name = |event: &Event| event.note.clone().unwrap_or_default();
        posts
            .iter()
            .map(|post| (name(&post.event), count(&post.event)))
            .collect()
    }

    #[test]
    fn a_warning_that_lasts_or_comes_back_is_one_event_with_a_series() {
        let mut book = Book::default();
        let none: [(String, i32); 0] = [];
        let of_a = |count| [("a".to_owned(), count)];
        assert_eq!(posted(&mut book, &["a"], 0), of_a(1));
        assert_eq!(posted(&mut book, &["a"], 60), none, "it lasts");
        assert_eq!(posted(&mut book, &["a"], 300), of_a(2), "it still lasts");
        assert_eq!(posted(&mut book, &[], 301), none);
        assert_eq!(posted(&mut book, &["a"], 302), none, "too early");
        assert_eq!(posted(&mut book, &["a"], 310), of_a(3), "it came back");
        assert_eq!(posted(&mut book, &[], 320), none);
        assert_eq!(posted(&mut book, &[], 320 + 1800), none);
        assert_eq!(
            posted(&mut book, &["a"], 320 + 1801),
            of_a(1),
            "another event"
        );
    }

    #[test]
    fn an_event_of_a_pod_that_calls_repeat_gets_a_series() {
        let pod = ObjectName {
            namespace: "a".into(),
            name: "web".into(),
        };
        let told = PodEvent {
            severity: Severity::Warning,
            reason: "NetworkRefused".into(),
            message: "no such link".into(),
            trace: None,
        };
        let mut book = PodBook::default();
        let mut count = |uid: &str, seconds: i64| {
            let now = Timestamp::from_second(1000 + seconds).expect("a time");
            let Post { event } = book.post(&pod, uid, &told, ("n1", now))?;
            assert_eq!(event.metadata.namespace.as_deref(), Some("a"));
            Some(event.series.map_or(1, |series| series.count))
        };
        assert_eq!(count("u", 0), Some(1));
        assert_eq!(count("u", 1), None, "too early");
        assert_eq!(count("v", 1), Some(1), "another pod of this name");
        assert_eq!(count("u", 11), Some(3));
        assert_eq!(count("u", 3600), Some(1), "forgotten");
    }

    #[test]
    fn the_oldest_events_of_pods_are_forgotten_when_there_are_many() {
        let pod = ObjectName {
            namespace: "a".into(),
            name: "web".into(),
        };
        let told = PodEvent {
            severity: Severity::Normal,
            reason: "AddedInterface".into(),
            message: "net1".into(),
            trace: None,
        };
        let mut book = PodBook::default();
        for number in 0..MOST_OF_PODS * 3 {
            let seconds = i64::try_from(number / 10).expect("a number");
            let now = Timestamp::from_second(1000 + seconds).expect("a time");
            let posted = book.post(&pod, &format!("uid-{number}"), &told, ("n1", now));
            assert!(posted.is_some() && book.known.len() <= MOST_OF_PODS);
        }
        let now = Timestamp::from_second(1100).expect("a time");
        let last = format!("uid-{}", MOST_OF_PODS * 3 - 1);
        let series = book
            .post(&pod, &last, &told, ("n1", now))
            .expect("a series");
        assert_eq!(series.event.series.expect("a series").count, 2);
        let first = book
            .post(&pod, "uid-0", &told, ("n1", now))
            .expect("an event");
        assert_eq!(first.event.series, None);
    }

    #[test]
    fn a_repeated_event_of_a_pod_is_counted_later_without_another_one() {
        let pod = ObjectName {
            namespace: "a".into(),
            name: "web".into(),
        };
        let told = PodEvent {
            severity: Severity::Normal,
            reason: "Repaired".into(),
            message: "a link".into(),
            trace: None,
        };
        let at = |seconds: i64| Timestamp::from_second(1000 + seconds).expect("a time");
        let mut book = PodBook::default();
        assert!(book.post(&pod, "u", &told, ("n1", at(0))).is_some());
        assert!(book.post(&pod, "u", &told, ("n1", at(1))).is_none());
        assert!(book.due(at(9)).is_empty());
        let due = book.due(at(10));
        let series = due[0].event.series.as_ref().expect("a series");
        assert_eq!((due.len(), series.count), (1, 2));
        assert!(book.due(at(30)).is_empty());
    }

    #[test]
    fn many_warnings_become_events_a_few_at_a_time() {
        let mut book = Book::default();
        let notes: Vec<String> = (0..50).map(|number| format!("range {number}")).collect();
        let notes: Vec<&str> = notes.iter().map(String::as_str).collect();
        let counts = [0, 5, 10, 15].map(|seconds| posted(&mut book, &notes, seconds).len());
        assert_eq!(counts, [20, 20, 10, 0]);
    }

    #[test]
    fn an_event_is_about_the_node_and_its_text_is_bounded() {
        let now = Timestamp::from_second(1000).expect("a time");
        let event = event(&warning(&"ä".repeat(1000)), &node(), now);
        assert_eq!(event.note.map(|note| note.len()), Some(1024));
        let about = event.regarding.expect("an object");
        assert_eq!(about.kind.as_deref(), Some("Node"));
        assert_eq!(about.uid.as_deref(), Some("4f1c"));
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    }
}
