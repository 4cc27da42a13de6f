//! The annotation `network-status` of a pod, written for a call.

use super::answer::Server;
use super::turns::Turn;
use crate::cluster::objects::Entry;
use crate::cluster::pods::{self, PodObject};
use braid_client::api::annotation_patch;
use braid_core::k8s::status::{containers, list, rewrite, withdrawn, without};
use braid_core::k8s::{NETWORK_STATUS, ObjectName};
use braid_node::source::agent::protocol::{Publication, Withdrawal};
use kube::Api;
use kube::api::{Patch, PatchParams};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Attempts. Each further one follows a change by another writer.
const ATTEMPTS: usize = 4;
/// Longest time of one attempt.
const LIMIT: Duration = Duration::from_secs(5);
/// First and last pause while the API server is away.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(64);
/// A `test` of the patch failed: the annotation or the pod is another one.
const UNFIT: u16 = 422;
const NOT_FOUND: u16 = 404;

/// Change of a pod's annotation `network-status`.
enum Change<'c> {
    /// Entries of a call, in place of those that it read in `seen`.
    Publish {
        seen: Option<&'c str>,
        entries: &'c str,
    },
    /// Removal of the entries of a failed call, which had read `seen`.
    Withdraw {
        seen: Option<&'c str>,
        container_id: &'c str,
    },
    /// Removal of the entries of containers that are gone.
    Sweep { gone: &'c [String] },
}

impl Change<'_> {
    /// Returns the new value for the current value; `None` leaves the annotation unchanged.
    fn value(&self, now: Option<&str>) -> Option<String> {
        match self {
            Self::Publish { seen, entries } => {
                let value = rewrite(now, *seen, list(Some(entries)));
                (now != Some(value.as_str())).then_some(value)
            }
            Self::Withdraw { seen, container_id } => withdrawn(now, *seen, container_id),
            Self::Sweep { gone } => {
                let is_gone = |id: &str| gone.iter().any(|one| one == id);
                let has_any = containers(now).iter().any(|id| is_gone(id));
                has_any.then(|| without(now.unwrap_or_default(), &is_gone))
            }
        }
    }
}

impl Server {
    /// Writes `status`, the status of a publication. Returns false if the pod is gone. Tries again
    /// while the API server is away, until another writer writes the status or a later call does.
    pub(super) async fn publish(
        &self,
        publication: Publication,
        status: String,
        turn: Turn,
    ) -> Result<bool, String> {
        let Publication { pod, uid, seen, .. } = &publication;
        let change = Change::Publish {
            seen: seen.as_deref(),
            entries: &status,
        };
        let is_once = || self.is_overtaken(&publication);
        self.retry((pod, uid), &change, &turn, is_once).await
    }

    /// Removes the status of a failed ADD, if it was written. Returns false if the pod is gone. Tries
    /// again while the API server is away, until a later call writes a status.
    pub(super) async fn withdraw(
        &self,
        withdrawal: Withdrawal,
        turn: Turn,
    ) -> Result<bool, String> {
        let Withdrawal {
            pod,
            uid,
            container_id,
            seen,
        } = &withdrawal;
        let change = Change::Withdraw {
            seen: seen.as_deref(),
            container_id,
        };
        self.retry((pod, uid), &change, &turn, || false).await
    }

    /// Removes the entries of containers that are gone. Returns false if there are none, if the pod is
    /// gone, or if a call is about to write its status.
    pub(super) async fn sweep(
        &self,
        (pod, uid): (&ObjectName, &str),
        gone: &[String],
    ) -> Result<bool, String> {
        let Some(turn) = self.turns.if_idle(uid) else {
            return Ok(false);
        };
        let _alone = turn.alone().await;
        self.write(pod, uid, &Change::Sweep { gone }, &turn).await
    }

    /// Changes the annotation. After an error, tries again unless `is_once` returns true, at most for
    /// two minutes.
    async fn retry(
        &self,
        (pod, uid): (&ObjectName, &str),
        change: &Change<'_>,
        turn: &Turn,
        is_once: impl Fn() -> bool,
    ) -> Result<bool, String> {
        let mut pause = SHORTEST;
        loop {
            let written = {
                let _alone = turn.alone().await;
                self.write(pod, uid, change, turn).await
            };
            let Err(why) = &written else {
                return written;
            };
            if pause > LONGEST || !turn.is_newest() || is_once() {
                tracing::warn!(%pod, error = %why, "write the network-status");
                return written;
            }
            sleep(pause).await;
            if !turn.is_newest() {
                return written;
            }
            pause *= 2;
        }
    }

    /// True if the status in the cache is not the one that the call read.
    fn is_overtaken(&self, publication: &Publication) -> bool {
        let known = self.store.caches().pods.get(&publication.pod).cloned();
        known.is_some_and(|entry| {
            !pods::is_of(&entry, &publication.uid)
                || entry.annotations().get(NETWORK_STATUS) != publication.seen.as_ref()
        })
    }

    async fn write(
        &self,
        pod: &ObjectName,
        uid: &str,
        change: &Change<'_>,
        turn: &Turn,
    ) -> Result<bool, String> {
        let api: Api<PodObject> =
            Api::namespaced_with(self.client.clone(), &pod.namespace, &pods::resource());
        // The cache may lack the status that is to be withdrawn.
        let mut known = match change {
            Change::Publish { .. } | Change::Sweep { .. } => {
                self.store.caches().pods.get(pod).cloned()
            }
            Change::Withdraw { .. } => None,
        };
        for attempt in 0..ATTEMPTS {
            // The other writer may be a later call of this pod.
            if attempt > 0 && !turn.is_newest() {
                return Err("a later call has a newer status".to_owned());
            }
            let entry = match known.take().filter(|entry| pods::is_of(entry, uid)) {
                Some(entry) => Some(entry),
                None => self.get::<PodObject>(pod, &pods::resource()).await?,
            };
            let Some(entry) = entry.filter(|entry| pods::is_of(entry, uid)) else {
                return Ok(false);
            };
            let Some(patch) = patch(change, &entry)? else {
                return Ok(!matches!(change, Change::Sweep { .. }));
            };
            let params = PatchParams::default();
            let patched = api.patch_subresource("status", &pod.name, &params, &patch);
            match timeout(LIMIT, patched).await {
                Ok(Ok(_)) => return Ok(true),
                Ok(Err(kube::Error::Api(status))) if status.code == UNFIT => {}
                Ok(Err(kube::Error::Api(status))) if status.code == NOT_FOUND => return Ok(false),
                Ok(Err(err)) => return Err(err.to_string()),
                Err(_) => return Err(format!("no response within {LIMIT:?}")),
            }
        }
        Err(format!("another writer changed pod {pod} {ATTEMPTS} times"))
    }
}

/// Returns the patch; `None` if nothing changes.
fn patch(change: &Change<'_>, entry: &Entry) -> Result<Option<Patch<()>>, String> {
    let annotations = entry.annotations();
    let now = annotations.get(NETWORK_STATUS).map(String::as_str);
    let Some(value) = change.value(now) else {
        return Ok(None);
    };
    let patch = annotation_patch(&entry.uid, (NETWORK_STATUS, &value), &annotations);
    let patch = serde_json::from_value(patch).map_err(|err| err.to_string())?;
    Ok(Some(Patch::Json(patch)))
}
