//! The caches, shared by watches and answers.

use crate::cluster::objects::{Entry, Objects};
use crate::cluster::pods;
use braid_core::k8s::ObjectName;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::timeout;

/// The caches.
pub(crate) struct Store {
    caches: Mutex<Caches>,
    pods_changed: Sender<()>,
    networks_changed: Sender<()>,
    /// `None` if no pod is to be compared with its annotation.
    looks: Option<UnboundedSender<Look>>,
}

/// A reason to compare a running pod with its annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    /// The list of pods is complete, or is another one.
    All,
    /// The pod has changed.
    Pod(ObjectName),
    /// An ADD has attached the pod to networks.
    Attached(ObjectName),
}

/// Objects by kind.
#[derive(Default)]
pub(crate) struct Caches {
    pub(crate) pods: Objects,
    pub(crate) networks: Objects,
    pub(super) claims: Objects,
}

impl Store {
    /// Creates empty caches.
    pub(super) fn new(looks: Option<UnboundedSender<Look>>) -> Self {
        Self {
            caches: Mutex::default(),
            pods_changed: Sender::new(()),
            networks_changed: Sender::new(()),
            looks,
        }
    }

    /// Lets a running pod be compared with its annotation.
    pub(super) fn look(&self, look: Look) {
        if let Some(looks) = &self.looks {
            // The receiver lives as long as the agent.
            let _ = looks.send(look);
        }
    }

    /// Locks the caches. The guard must not live across an `await`.
    pub(crate) fn caches(&self) -> MutexGuard<'_, Caches> {
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
    pub(crate) fn networks_changed(&self) -> Receiver<()> {
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
