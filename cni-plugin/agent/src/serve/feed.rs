//! Watches that fill the caches.

use super::store::{Caches, Look, Store};
use crate::cluster::networks::{ClaimObject, NetworkObject};
use crate::cluster::objects::{Kept, Objects};
use crate::cluster::pods::PodObject;
use crate::watch::Watch;
use kube::Resource;
use kube::runtime::watcher::{self, Event};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;

pub(super) async fn pods(mut watch: Watch<PodObject>, store: Arc<Store>) {
    let mut errors = Errors::of("pods of this node");
    while let Some(look) = update(&mut watch, &store, |caches| &mut caches.pods, &mut errors).await
    {
        store.tell_pods_changed();
        store.look(look);
    }
}

pub(super) async fn networks(mut watch: Watch<NetworkObject>, store: Arc<Store>) {
    let mut errors = Errors::of("NetworkAttachmentDefinitions");
    while update(
        &mut watch,
        &store,
        |caches| &mut caches.networks,
        &mut errors,
    )
    .await
    .is_some()
    {
        store.tell_networks_changed();
    }
}

pub(super) async fn claims(mut watch: Watch<ClaimObject>, store: Arc<Store>) {
    let mut errors = Errors::of("IPAMClaims");
    while update(&mut watch, &store, |caches| &mut caches.claims, &mut errors)
        .await
        .is_some()
    {}
}

/// Follows the watch until an object has changed, and returns it. `None` if the watch ended, which it
/// never does.
async fn update<K>(
    watch: &mut Watch<K>,
    store: &Store,
    kind: impl Fn(&mut Caches) -> &mut Objects,
    errors: &mut Errors,
) -> Option<Look>
where
    K: Kept + Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    while let Some(event) = watch.next().await {
        match event {
            Ok(event) => {
                errors.last.clear();
                if kind(&mut store.caches()).update(&event) {
                    return Some(look_at(&event));
                }
            }
            Err(err) => {
                if is_absent(&err) {
                    kind(&mut store.caches()).forget();
                }
                errors.report(&err);
            }
        }
    }
    None
}

/// Returns the pods to compare after an event.
fn look_at(event: &Event<impl Kept>) -> Look {
    match event {
        Event::Apply(object) | Event::Delete(object) => object.name().map_or(Look::All, Look::Pod),
        Event::Init | Event::InitApply(_) | Event::InitDone => Look::All,
    }
}

/// Errors of a watch. Each is logged once in a row, since the watch is tried again and again.
struct Errors {
    objects: &'static str,
    last: String,
}

impl Errors {
    fn of(objects: &'static str) -> Self {
        let last = String::new();
        Self { objects, last }
    }

    fn report(&mut self, err: &watcher::Error) {
        let text = err.to_string();
        if text == self.last {
            return;
        }
        if is_absent(err) {
            tracing::info!(objects = self.objects, "the API has no such kind yet");
        } else {
            tracing::warn!(objects = self.objects, error = text, "watch");
        }
        self.last = text;
    }
}

/// True if the API has no such kind: its CRD is not installed.
fn is_absent(err: &watcher::Error) -> bool {
    const NOT_FOUND: u16 = 404;
    match err {
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code == NOT_FOUND,
        watcher::Error::WatchStartFailed(_)
        | watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => false,
    }
}
