//! The caches, shared by watches and answers.

use crate::cluster::objects::{Entry, Objects};
use crate::cluster::pods;
use braid_core::k8s::ObjectName;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::timeout;

/// The caches.
pub(super) struct Store {
    caches: Mutex<Caches>,
    pods_changed: Sender<()>,
    networks_changed: Sender<()>,
}

/// Objects by kind.
#[derive(Default)]
pub(super) struct Caches {
    pub(super) pods: Objects,
    pub(super) networks: Objects,
    pub(super) claims: Objects,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            caches: Mutex::default(),
            pods_changed: Sender::new(()),
            networks_changed: Sender::new(()),
        }
    }
}

impl Store {
    /// Locks the caches. The guard must not live across an `await`.
    pub(super) fn caches(&self) -> MutexGuard<'_, Caches> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everyone who waits for a pod look again.
    pub(super) fn tell_pods_changed(&self) {
        self.pods_changed.send_replace(());
    }

    /// Lets the copies on disk follow.
    pub(super) fn tell_networks_changed(&self) {
        self.networks_changed.send_replace(());
    }

    /// Returns a receiver of changed networks.
    pub(super) fn networks_changed(&self) -> Receiver<()> {
        self.networks_changed.subscribe()
    }

    /// Waits until the pod with this uid is known; `None` after `limit`.
    pub(super) async fn pod(&self, name: &ObjectName, uid: &str, limit: Duration) -> Option<Entry> {
        let mut changed = self.pods_changed.subscribe();
        let look = async {
            loop {
                let known = self.caches().pods.get(name).cloned();
                if let Some(entry) = known.filter(|entry| pods::is_of(entry, uid)) {
                    return Some(entry);
                }
                changed.changed().await.ok()?;
            }
        };
        timeout(limit, look).await.ok().flatten()
    }
}
