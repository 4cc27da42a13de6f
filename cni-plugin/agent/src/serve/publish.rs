//! The annotation `network-status` of a pod, written for a call.

use super::answer::Server;
use super::turns::Turn;
use crate::cluster::objects::Entry;
use crate::cluster::pods::{self, PodObject};
use braid_client::api::annotation_patch;
use braid_core::k8s::NETWORK_STATUS;
use braid_core::k8s::status::{list, rewrite};
use braid_node::source::agent::protocol::Publication;
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

impl Server {
    /// Writes the status, if there is one. Returns false if the pod is gone. If the call does not
    /// wait, tries again while the API server is away, until another writer writes the status or a
    /// call tells of this pod again.
    pub(super) async fn publish(
        &self,
        publication: Publication,
        turn: Turn,
    ) -> Result<bool, String> {
        let Some(status) = &publication.status else {
            return Ok(true);
        };
        let mut pause = SHORTEST;
        loop {
            let published = self.write(&publication, status).await;
            let Err(why) = &published else {
                return published;
            };
            let is_last = publication.is_awaited || pause > LONGEST;
            if is_last || !turn.is_newest() || self.is_overtaken(&publication) {
                tracing::warn!(pod = %publication.pod, error = %why, "publish the network-status");
                return published;
            }
            sleep(pause).await;
            if !turn.is_newest() {
                return published;
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

    async fn write(&self, publication: &Publication, status: &str) -> Result<bool, String> {
        let Publication { pod, uid, .. } = publication;
        let api: Api<PodObject> =
            Api::namespaced_with(self.client.clone(), &pod.namespace, &pods::resource());
        let mut known = self.store.caches().pods.get(pod).cloned();
        for _ in 0..ATTEMPTS {
            let entry = match known.take().filter(|entry| pods::is_of(entry, uid)) {
                Some(entry) => Some(entry),
                None => self.get::<PodObject>(pod, &pods::resource()).await?,
            };
            let Some(entry) = entry.filter(|entry| pods::is_of(entry, uid)) else {
                return Ok(false);
            };
            let Some(patch) = patch(publication.seen.as_deref(), status, &entry)? else {
                return Ok(true);
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

/// Returns the patch; `None` if the pod has the status already. `seen` is the value that the call
/// read.
fn patch(seen: Option<&str>, status: &str, entry: &Entry) -> Result<Option<Patch<()>>, String> {
    let annotations = entry.annotations();
    let now = annotations.get(NETWORK_STATUS).map(String::as_str);
    let value = rewrite(now, seen, list(Some(status)));
    if now == Some(value.as_str()) {
        return Ok(None);
    }
    let patch = annotation_patch(&entry.uid, (NETWORK_STATUS, &value), &annotations);
    let patch = serde_json::from_value(patch).map_err(|err| err.to_string())?;
    Ok(Some(Patch::Json(patch)))
}
