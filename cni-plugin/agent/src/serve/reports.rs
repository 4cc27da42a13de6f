//! Events about pods, published for calls.

use crate::events::publisher::Publisher;
use crate::events::{PodBook, SHORTEST};
use braid_core::k8s::ObjectName;
use braid_core::k8s::source::Event;
use braid_node::source::agent::protocol::Publication;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::sleep;

/// Publisher of the events that calls report.
pub(crate) struct Reports {
    node: String,
    shared: Arc<Shared>,
}

struct Shared {
    book: Mutex<PodBook>,
    publisher: Publisher,
    /// Notified of an event that was repeated a moment after it was published.
    repeated: Notify,
}

impl Reports {
    /// Starts a task that publishes the events. `node` is the name of this node.
    pub(crate) fn start(client: Client, node: &str) -> Self {
        let shared = Arc::new(Shared {
            book: Mutex::default(),
            publisher: Publisher::start(client),
            repeated: Notify::new(),
        });
        tokio::spawn(publish_series(Arc::clone(&shared)));
        Self {
            node: node.to_owned(),
            shared,
        }
    }

    /// Publishes the events of a call later.
    pub(super) fn publish(&self, publication: &Publication) {
        let Publication {
            pod, uid, events, ..
        } = publication;
        self.post(pod, uid, events);
    }

    /// Publishes events about a pod later.
    pub(crate) fn post(&self, pod: &ObjectName, uid: &str, events: &[Event]) {
        let mut book = self.shared.book();
        let by = (self.node.as_str(), Timestamp::now());
        let mut posts = Vec::new();
        for event in events {
            match book.post(pod, uid, event, by) {
                Some(post) => posts.push(post),
                None => self.shared.repeated.notify_one(),
            }
        }
        self.shared.publisher.publish(posts);
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, PodBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes the series of repeated events.
async fn publish_series(shared: Arc<Shared>) {
    loop {
        shared.repeated.notified().await;
        sleep(SHORTEST.unsigned_abs()).await;
        let posts = shared.book().due(Timestamp::now());
        shared.publisher.publish(posts);
    }
}
