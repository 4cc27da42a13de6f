//! Repair of running pods: their links on the node, the addresses of gateways, and interfaces that
//! went with a parent or with the other end of a pair.
//!
//! ```text
//!  notifications ─► may they be about links of pods? ─┐
//!  start, every minute ───────────────────────────────┴─► records and node compared
//!      ─► containers that may be broken ─► pace ─► repaired under the container's lock ─► events
//!      ─► duplicates of their addresses ─► events
//! ```

use super::duplicates::{Duplicates, News};
use super::message::PodLinks;
use super::pace::{Pace, Verdict};
use super::watch::{Notification, Watch};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::serve::reports::Reports;
use braid_core::cni::Error as CallError;
use braid_core::k8s::settings::PodRef;
use braid_core::k8s::source::{Event, Severity};
use braid_node::apply::host::{Machine, This};
use braid_node::attach::repair::{self, Links, Restored, SeenTables};
use braid_node::log::Log;
use braid_node::store::holder::is_alive;
use braid_node::store::record::{self, Attached, Key, Record};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio::time::sleep_until;

/// Time after a message in which others of the same change arrive, and calls finish.
const SETTLE: Duration = Duration::from_secs(1);
/// Time after which rules that are still missing are restored.
const RETRY: Duration = Duration::from_secs(3);
/// Time after which the records are compared without a message.
const RESYNC: Duration = Duration::from_mins(1);

/// Starts the task.
pub(crate) fn start(reports: Reports, metrics: Metrics) -> Result<(), Error> {
    let task = Task {
        watch: Watch::open()?,
        seen: Seen::default(),
        reports,
        metrics,
    };
    tokio::spawn(task.run());
    Ok(())
}

struct Task {
    watch: Watch,
    seen: Seen,
    reports: Reports,
    metrics: Metrics,
}

/// State between two comparisons.
#[derive(Default)]
struct Seen {
    links: Links,
    tables: SeenTables,
    pace: Pace,
    /// True if rules of pods are still missing.
    is_incomplete: bool,
    /// Records whose last repair failed.
    failed: BTreeSet<String>,
    duplicates: Duplicates,
}

/// Outcome for one container.
struct Outcome {
    container_id: String,
    pod: Option<PodRef>,
    result: Result<Vec<Restored>, Failure>,
}

/// Outcome of a comparison.
#[derive(Default)]
struct Found {
    outcomes: Vec<Outcome>,
    duplicates: Vec<News>,
}

enum Failure {
    /// The container is repaired after a pause.
    Paused(Duration),
    Failed(String),
}

impl Task {
    async fn run(mut self) {
        let mut due = Instant::now();
        loop {
            let interest = PodLinks(&self.seen.links.indices);
            tokio::select! {
                notification = self.watch.next() => {
                    let is_due = match notification {
                        Notification::Lost => true,
                        Notification::Messages(messages) => interest.judge(messages),
                    };
                    if is_due {
                        due = due.min(Instant::now() + SETTLE);
                    }
                }
                () = sleep_until(due.into()) => {
                    let seen = std::mem::take(&mut self.seen);
                    if let Ok((seen, found)) = spawn_blocking(|| compare(seen)).await {
                        self.seen = seen;
                        self.report(&found.outcomes);
                        self.report_duplicates(&found.duplicates);
                    }
                    let now = Instant::now();
                    let Seen { is_incomplete, failed, duplicates, .. } = &self.seen;
                    let is_open = *is_incomplete || !failed.is_empty() || duplicates.is_open();
                    due = now + if is_open { RETRY } else { RESYNC };
                    due = self.seen.pace.due(now).map_or(due, |end| end.min(due));
                }
            }
        }
    }

    fn report(&self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let id = outcome.container_id.as_str();
            let mut events = Vec::new();
            match &outcome.result {
                Ok(restored) => {
                    for one in restored {
                        let message = sentence(one);
                        tracing::info!(container = id, "{message}");
                        self.count(one);
                        events.push(event(Severity::Normal, "Repaired", message));
                    }
                }
                Err(Failure::Failed(why)) => {
                    tracing::warn!(container = id, error = why, "repair the pod's networks");
                    events.push(event(Severity::Warning, "RepairFailed", why.clone()));
                }
                Err(Failure::Paused(pause)) => {
                    tracing::warn!(
                        container = id,
                        ?pause,
                        "another program breaks it again and again"
                    );
                    let message = "another program breaks the pod's networks again and again, so \
                                   they are restored after a pause of up to a minute";
                    events.push(event(Severity::Warning, "RepairPaused", message.to_owned()));
                }
            }
            self.post(outcome.pod.as_ref(), &events);
        }
    }

    fn report_duplicates(&self, duplicates: &[News]) {
        for one in duplicates {
            let message = one.sentence();
            tracing::warn!(container = one.container_id, "{message}");
            self.metrics.address_conflict();
            let event = event(Severity::Warning, "AddressInUse", message);
            self.post(one.pod.as_ref(), &[event]);
        }
    }

    fn post(&self, pod: Option<&PodRef>, events: &[Event]) {
        if let Some(PodRef {
            name,
            uid: Some(uid),
            ..
        }) = pod
        {
            self.reports.post(name, uid, events);
        }
    }

    fn count(&self, restored: &Restored) {
        if restored.parts.is_empty() {
            self.metrics.repaired("attachment", 1);
        }
        for (kind, count) in &restored.parts {
            self.metrics.repaired(kind, *count);
        }
    }
}

fn event(severity: Severity, reason: &'static str, message: String) -> Event {
    Event {
        severity,
        reason: reason.into(),
        message,
        trace: None,
    }
}

fn sentence(restored: &Restored) -> String {
    let Restored {
        network, ifname, ..
    } = restored;
    if restored.parts.is_empty() {
        return format!("attached {ifname} to network {network:?} again");
    }
    let kinds: Vec<&str> = restored.parts.keys().copied().collect();
    let kinds = kinds.join(", ");
    format!("restored what {ifname} of network {network:?} has on the node: {kinds}")
}

/// Compares records and node, and repairs the containers that are broken.
fn compare(seen: Seen) -> (Seen, Found) {
    let mut seen = seen;
    let machine = This::new(Log::new(|text| tracing::warn!("{text}")));
    let found = try_compare(&mut seen, &machine).unwrap_or_else(|err| {
        tracing::warn!(error = %err, "compare running pods with the node");
        Found::default()
    });
    (seen, found)
}

fn try_compare(seen: &mut Seen, machine: &This) -> Result<Found, CallError> {
    let records = record::list().map_err(CallError::from)?;
    if records.is_empty() {
        (seen.links, seen.is_incomplete) = (Links::default(), false);
        seen.tables = SeenTables::default();
        seen.failed.clear();
        seen.duplicates = Duplicates::default();
        return Ok(Found::default());
    }
    let mut host = machine.open(None).map_err(CallError::from)?;
    let tables = repair::restore_tables(&records, &mut *host, &mut seen.tables);
    seen.is_incomplete = tables.is_incomplete;
    for err in tables.errors {
        tracing::warn!(error = %err, "restore rules of pods");
    }
    let look = repair::look(&records, &mut *host)?;
    let remade = remade(&seen.links, &look.links);
    seen.links = look.links;
    let mut outcomes = Vec::new();
    for (at, restored) in tables.restored {
        outcomes.push(outcome(&records[at], Ok(vec![restored])));
    }
    // A record that is gone needs no repair.
    let failed = std::mem::take(&mut seen.failed);
    for (at, record) in records.iter().enumerate() {
        let has_failed = failed.contains(&name(record));
        let is_broken = look.broken.contains(&at) || has_failed;
        let is_suspect =
            is_broken || repair::parents(record).any(|at| remade.contains(at.name.as_str()));
        if !is_suspect || !is_alive(record) {
            continue;
        }
        let outcome = repaired(record, is_broken, seen, machine);
        let is_open = match outcome.as_ref().map(|it| &it.result) {
            Some(Ok(_)) => false,
            Some(Err(Failure::Failed(_))) => true,
            Some(Err(Failure::Paused(_))) | None => has_failed,
        };
        if is_open {
            seen.failed.insert(name(record));
        }
        outcomes.extend(outcome);
    }
    let duplicates = seen.duplicates.look(&records, machine);
    Ok(Found {
        outcomes,
        duplicates,
    })
}

/// Repairs a container, unless it has to wait. `is_broken` is false if its parent is another link than
/// before, and no earlier repair failed.
fn repaired(record: &Record, is_broken: bool, seen: &mut Seen, machine: &This) -> Option<Outcome> {
    let verdict = if is_broken {
        seen.pace.broken(&name(record), Instant::now())
    } else {
        Verdict::Restore
    };
    let result = match verdict {
        Verdict::Wait => return None,
        Verdict::Pause(pause) => Err(Failure::Paused(pause)),
        Verdict::Restore => {
            repair::repair(record, machine).map_err(|err| Failure::Failed(err.to_string()))
        }
    };
    Some(outcome(record, result))
}

/// Returns the name of a record. A container may have several.
fn name(record: &Record) -> String {
    let Key { owner, plugin } = &record.key;
    format!(
        "{} {} {} {plugin}",
        owner.container_id, owner.network, owner.ifname
    )
}

fn outcome(record: &Record, result: Result<Vec<Restored>, Failure>) -> Outcome {
    let first = record.attachments.first();
    Outcome {
        container_id: record.key.owner.container_id.clone(),
        pod: first.and_then(Attached::pod),
        result,
    }
}

/// Returns the names of parents and bridges that are other links than before, or that were not known.
fn remade(before: &Links, now: &Links) -> BTreeSet<String> {
    let is_other = |(name, index): &(&String, &Option<u32>)| {
        index.is_some() && before.shared.get(*name) != Some(*index)
    };
    let other = now.shared.iter().filter(is_other);
    other.map(|(name, _)| name.clone()).collect()
}
