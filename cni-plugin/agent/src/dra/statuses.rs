//! Status of claimed devices in their claims, which follows the records of calls.
//!
//! ```text
//!  prepared claims, records of containers ─► status ─► differs from the claim's ─► API server
//! ```

use super::claims::Stored;
use super::driver::Parts;
use super::interfaces::Interfaces;
use braid_core::dra::claim::Claim;
use braid_core::dra::device_status::{DeviceStatus, manager, statuses};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// Time between two comparisons while a device has no interface, and otherwise.
const SOON: Duration = Duration::from_secs(1);
const RESYNC: Duration = Duration::from_mins(1);
/// Pause after an error.
const RETRY: Duration = Duration::from_secs(10);
/// Time after which a device without an interface gets a status: most pods start before.
const LATE: Duration = Duration::from_secs(10);

/// Starts the task. `attached` changes after each ADD.
pub(super) fn start(parts: Arc<Parts>, node: &str, attached: watch::Receiver<()>) {
    let task = Task {
        parts,
        manager: manager(node),
        known: BTreeMap::new(),
        reported: BTreeSet::new(),
    };
    tokio::spawn(task.run(attached));
}

struct Task {
    parts: Arc<Parts>,
    /// Field manager of this node.
    manager: String,
    /// State of each prepared claim by its uid.
    known: BTreeMap<String, Known>,
    /// Errors of the last comparison. They are logged once.
    reported: BTreeSet<String>,
}

/// State of a prepared claim.
struct Known {
    first_seen: Instant,
    /// Status that the claim has; `None` before it was read.
    status: Option<Vec<DeviceStatus>>,
}

impl Task {
    async fn run(mut self, mut attached: watch::Receiver<()>) {
        loop {
            let pause = self.compare().await;
            let pause = sleep(pause);
            let prepared = self.parts.prepared.notified();
            tokio::select! {
                Ok(()) = attached.changed() => {}
                () = prepared => {}
                () = pause => {}
            }
        }
    }

    /// Compares the claims with the records. Returns the time until the next comparison.
    async fn compare(&mut self) -> Duration {
        let Ok(Stored { whole, .. }) = self.parts.claims.read().await else {
            return RETRY;
        };
        let claims: Vec<Claim> = whole.into_iter().map(|one| one.claim).collect();
        self.known
            .retain(|uid, _| claims.iter().any(|claim| claim.uid == *uid));
        if claims.is_empty() {
            if let Err(err) = self.parts.claims.settle().await {
                tracing::debug!(error = %err, "no claim is prepared");
            }
            return RESYNC;
        }
        let Ok(Some(interfaces)) = spawn_blocking(Interfaces::read).await else {
            return RETRY;
        };
        let (mut is_settled, mut errors) = (true, BTreeSet::new());
        for claim in claims {
            match self.compare_claim(&claim, &interfaces).await {
                Ok(is_ready) => is_settled &= is_ready,
                Err(err) => {
                    errors.insert(format!("claim {}: {err}", claim.name));
                }
            }
        }
        for error in errors.difference(&self.reported) {
            tracing::warn!(%error, "write the status of claimed devices");
        }
        self.reported = errors;
        match (self.reported.is_empty(), is_settled) {
            (false, _) => RETRY,
            (true, false) => SOON,
            (true, true) => RESYNC,
        }
    }

    /// Applies the status of a claim if it differs. Returns true if each device has its interface.
    async fn compare_claim(
        &mut self,
        claim: &Claim,
        interfaces: &Interfaces,
    ) -> Result<bool, String> {
        if interfaces.busy.contains(&claim.uid) {
            return Ok(false);
        }
        let objects = &self.parts.objects;
        let known = self.known.entry(claim.uid.clone());
        let known = known.or_insert_with(|| Known {
            first_seen: Instant::now(),
            status: None,
        });
        let before = match &known.status {
            Some(status) => status.clone(),
            None => match objects.status(claim).await? {
                Some(status) => status,
                // The kubelet ends it soon.
                None => return Ok(true),
            },
        };
        let now = json!(Time(Timestamp::now()));
        let now = now.as_str().unwrap_or_default();
        let wanted = statuses(claim, &interfaces.attached, &before, now);
        let is_ready = wanted.iter().all(DeviceStatus::is_ready);
        known.status = Some(before.clone());
        let is_late = known.first_seen.elapsed() >= LATE;
        if wanted == before || !is_ready && before.is_empty() && !is_late {
            return Ok(is_ready);
        }
        objects.apply_status(claim, &wanted, &self.manager).await?;
        let reason = if is_ready { "attached" } else { "not attached" };
        tracing::info!(claim = %claim.name, reason, "wrote the status of claimed devices");
        known.status = Some(wanted);
        Ok(is_ready)
    }
}
