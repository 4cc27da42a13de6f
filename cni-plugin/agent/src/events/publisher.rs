//! Requests for events.

use super::{NAMESPACE, Post};
use crate::error::Error;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;

/// Requests that wait for the API server. Further ones are dropped.
const QUEUE: usize = 1024;

/// Publishes events, one after the other.
#[derive(Debug)]
pub struct Publisher {
    queue: mpsc::Sender<Post>,
}

impl Publisher {
    /// Starts a task that ends with this value.
    pub fn start(client: Client) -> Self {
        let (queue, posts) = mpsc::channel(QUEUE);
        tokio::spawn(publish(client, posts));
        Self { queue }
    }

    /// Publishes the events later. An API server that is away delays nothing.
    pub fn publish(&self, posts: Vec<Post>) {
        for post in posts {
            // The log has the warning as well.
            let _ = self.queue.try_send(post);
        }
    }
}

async fn publish(client: Client, mut posts: mpsc::Receiver<Post>) {
    let mut reported = None;
    while let Some(post) = posts.recv().await {
        let namespace = post
            .event
            .metadata
            .namespace
            .as_deref()
            .unwrap_or(NAMESPACE);
        let events = Api::namespaced(client.clone(), namespace);
        let error = send(&events, post.event).await.err();
        if let Some(err) = &error
            && error != reported
        {
            tracing::warn!(error = %err, "events are not published");
        }
        reported = error;
    }
}

async fn send(events: &Api<Event>, event: Event) -> Result<(), Error> {
    let failed = |err| Error::new("publish an event", err);
    if let Some(series) = &event.series {
        let name = event.metadata.name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(json!({"series": series}));
        match events.patch(name, &PatchParams::default(), &patch).await {
            // The server deletes events after a while.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            patched => return patched.map(drop).map_err(failed),
        }
    }
    let created = events.create(&PostParams::default(), &event).await;
    created.map(drop).map_err(failed)
}
