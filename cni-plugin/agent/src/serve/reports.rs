//! Events about pods, published for calls.

use crate::events::PodBook;
use crate::events::publisher::Publisher;
use braid_core::k8s::ObjectName;
use braid_core::k8s::source::Event;
use braid_node::source::agent::protocol::Publication;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use std::sync::{Mutex, PoisonError};

/// Publisher of the events that calls report.
pub(crate) struct Reports {
    node: String,
    book: Mutex<PodBook>,
    publisher: Publisher,
}

impl Reports {
    /// Starts a task that publishes the events. `node` is the name of this node.
    pub(crate) fn start(client: Client, node: &str) -> Self {
        Self {
            node: node.to_owned(),
            book: Mutex::default(),
            publisher: Publisher::start(client),
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
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let by = (self.node.as_str(), Timestamp::now());
        let mut posts = Vec::new();
        for event in events {
            posts.extend(book.post(pod, uid, event, by));
        }
        self.publisher.publish(posts);
    }
}
