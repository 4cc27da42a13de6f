//! Status of claimed devices in their claims, which follows the records of calls.
//!
//! ```text
//!  prepared claims, records of containers ─► status ─► differs from the claim's ─► API server
//! ```
//!
//! The status is of the allocation that the API server has. A claim that its next pod got with another one
//! is prepared again here: the kubelet prepares a claim once.

use super::claims::Stored;
use super::driver::Parts;
use super::interfaces::Interfaces;
use super::known::{Known, RESYNC, Wanted};
use braid_core::dra::claim::{Claim, Share};
use braid_core::dra::device_status::manager;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// Time between two comparisons while an interface is expected. Each ADD causes one too.
const SOON: Duration = Duration::from_secs(1);
/// Pause after an error.
const RETRY: Duration = Duration::from_secs(10);

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
                Ok(is_claim_settled) => is_settled &= is_claim_settled,
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

    /// Applies the status of a claim if it differs. Returns true if no interface is expected soon.
    async fn compare_claim(
        &mut self,
        claim: &Claim,
        interfaces: &Interfaces,
    ) -> Result<bool, String> {
        if interfaces.busy.contains(&claim.uid) {
            return Ok(false);
        }
        let now = Instant::now();
        let known = state(&mut self.known, claim, now);
        if known.is_due(now) || known.has_stranger(&claim.uid, interfaces) {
            read(&self.parts, claim, known, interfaces).await?;
        }
        let time = time();
        let mut wanted = known.wanted(interfaces, now, &time);
        if wanted.is_new && known.is_old(now) {
            read(&self.parts, claim, known, interfaces).await?;
            wanted = known.wanted(interfaces, now, &time);
        }
        let Wanted {
            status,
            is_ready,
            is_settled,
            is_new,
        } = wanted;
        if !is_new {
            return Ok(is_settled);
        }
        let objects = &self.parts.objects;
        let written = objects.apply_status(claim, &status, &self.manager).await;
        if written != Ok(true) {
            known.read_in(Duration::ZERO, now);
            return written.map(|_| true);
        }
        let reason = if is_ready { "attached" } else { "not attached" };
        tracing::info!(claim = %claim.name, reason, "wrote the status of claimed devices");
        known.wrote(status);
        Ok(is_settled)
    }
}

/// Returns the state of a claim: a new one if its file has other pods or shares.
fn state<'a>(known: &'a mut BTreeMap<String, Known>, claim: &Claim, now: Instant) -> &'a mut Known {
    let state = known.entry(claim.uid.clone());
    let state = state.or_insert_with(|| Known::new(claim, now));
    if !state.is_of(claim) {
        *state = Known::new(claim, now);
    }
    state
}

/// Returns the present time as the API server writes times.
fn time() -> String {
    let time = json!(Time(Timestamp::now()));
    time.as_str().unwrap_or_default().to_owned()
}

/// Reads a claim, and prepares it again if the scheduler has allocated it to another pod. `claim` is from
/// its file.
async fn read(
    parts: &Parts,
    claim: &Claim,
    known: &mut Known,
    interfaces: &Interfaces,
) -> Result<(), String> {
    let found = parts.objects.status(&claim.name).await;
    let found = found.map_err(|fault| fault.message)?;
    let found = found.filter(|(now, _)| is_here(now, claim));
    let next = found.as_ref().filter(|(now, _)| has_next_pod(now, claim));
    let is_done = match next {
        Some((now, _)) => parts.renew(now, interfaces.alone(now)).await,
        None => true,
    };
    let now = Instant::now();
    known.read(&claim.uid, found, interfaces, now);
    if !is_done {
        known.read_in(RESYNC, now);
    }
    Ok(())
}

/// True if the API server allocates the claim of a file, on this node. A node is a pool.
fn is_here(now: &Claim, file: &Claim) -> bool {
    let pool = file.shares.first().map(|share| &share.pool);
    let is_of_node = |share: &Share| Some(&share.pool) == pool;
    now.uid == file.uid && !now.shares.is_empty() && now.shares.iter().all(is_of_node)
}

/// True if another pod has got the claim since its file was written.
fn has_next_pod(now: &Claim, file: &Claim) -> bool {
    let (next, last) = (now.pods.first(), file.pods.first());
    next.is_some() && (next, &now.shares) != (last, &file.shares)
}
