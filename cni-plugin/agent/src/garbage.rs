//! Garbage of this node, at the start and periodically: runtimes call GC rarely or never.
//!
//! ```text
//!  records, leases ─► containers that are gone ─► detached, leases released
//!  leases of claims ─► list of claims, read after them ─► leases of deleted claims released
//! ```

use crate::cluster::networks::{ClaimObject, claim_resource};
use crate::error::Error;
use crate::metrics::Metrics;
use braid_node::apply::host::This;
use braid_node::attach::garbage::{self, Held};
use braid_node::log::Log;
use kube::api::ListParams;
use kube::{Api, Client};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

/// Time between two collections.
const PERIOD: Duration = Duration::from_secs(30);
/// Claims of one answer of the API server.
const PAGE: u32 = 500;
const NOT_FOUND: u16 = 404;

/// Starts the task.
pub(crate) fn start(client: &Client, metrics: Metrics) {
    let collector = Collector {
        client: client.clone(),
        metrics,
        reported: BTreeSet::new(),
    };
    tokio::spawn(collector.run());
}

struct Collector {
    client: Client,
    metrics: Metrics,
    /// Errors of the last collection. They are logged once.
    reported: BTreeSet<String>,
}

impl Collector {
    async fn run(mut self) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mut errors = self.containers().await;
            errors.extend(self.claims().await.err().map(|err| err.to_string()));
            for error in errors.difference(&self.reported) {
                tracing::warn!(%error, "collect garbage");
            }
            self.reported = errors;
        }
    }

    /// Detaches containers that are gone. Returns the errors.
    async fn containers(&self) -> BTreeSet<String> {
        let collect = || {
            let collected = garbage::collect(&machine());
            let texts = collected.errors.iter().map(ToString::to_string).collect();
            (collected.attachments, collected.leases, texts)
        };
        let Ok((attachments, leases, errors)) = spawn_blocking(collect).await else {
            return BTreeSet::new();
        };
        if attachments + leases > 0 {
            tracing::info!(attachments, leases, "collected garbage");
            self.metrics.collected("attachment", attachments);
            self.metrics.collected("lease", leases);
        }
        errors
    }

    /// Releases the addresses of claims that were deleted, also while the agent was away.
    async fn claims(&self) -> Result<(), Error> {
        let failed = |err: &dyn std::fmt::Display| Error::new("release addresses of claims", err);
        let held = spawn_blocking(|| garbage::claims(&machine()).map_err(|err| err.to_string()));
        let held: Held = match held.await {
            Ok(held) => held.map_err(|err| failed(&err))?,
            Err(_) => return Ok(()),
        };
        if held.is_empty() {
            return Ok(());
        }
        // Listed after the leases were read: an owner that is not in the list is a deleted claim.
        let Some(uids) = self.uids().await.map_err(|err| failed(&err))? else {
            return Ok(());
        };
        let release = move || {
            let released = garbage::release(&held, &uids, &machine());
            released.map_err(|err| err.to_string())
        };
        let Ok(released) = spawn_blocking(release).await else {
            return Ok(());
        };
        let addresses = released.map_err(|err| failed(&err))?;
        if addresses > 0 {
            tracing::info!(addresses, "released addresses of deleted claims");
            self.metrics.collected("claim", addresses);
        }
        Ok(())
    }

    /// Returns the uids of all claims; `None` if the cluster has no such kind, as while its
    /// definition is replaced.
    async fn uids(&self) -> Result<Option<BTreeSet<String>>, kube::Error> {
        let claims: Api<ClaimObject> = Api::all_with(self.client.clone(), &claim_resource());
        let (mut uids, mut page) = (BTreeSet::new(), ListParams::default().limit(PAGE));
        loop {
            let listed = match claims.list_metadata(&page).await {
                Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok(None),
                listed => listed?,
            };
            uids.extend(listed.items.into_iter().filter_map(|it| it.metadata.uid));
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(Some(uids)),
            }
        }
    }
}

fn machine() -> This {
    This::new(Log::new(|text| tracing::warn!("{text}")))
}
