//! Handle by which the agent's tasks count.

use super::claims::Traffic;
use super::families::Families;
use super::labels::{code_label, type_label};
use super::scrape::Scrape;
use braid_core::ipam::whereabouts::usage::Usage;
use braid_node::source::agent::report::CallReport;
use std::path::PathBuf;
use std::sync::Arc;

/// Handle of the agent's metrics; a clone is the same metrics.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Families>);

impl Metrics {
    /// Adds repaired objects of a kind, such as `route`.
    pub fn repaired(&self, kind: &'static str, count: u64) {
        let repairs = &self.0.repairs;
        repairs.get_or_create(&[("kind", kind)]).inc_by(count);
    }

    /// Adds collected objects of a kind, such as `lease`.
    pub fn collected(&self, kind: &'static str, count: u64) {
        let collected = &self.0.collected;
        collected.get_or_create(&[("kind", kind)]).inc_by(count);
    }

    /// Adds an address of a pod that another host has.
    pub fn address_conflict(&self) {
        self.0.address_conflicts.inc();
    }

    /// Adds a failed request or watch of the API.
    pub fn api_error(&self) {
        self.0.api_errors.inc();
    }

    /// Sets the number of pods that wait for a comparison.
    pub fn queue_depth(&self, depth: usize) {
        self.0.queue_depth.set(depth as u64);
    }

    /// Sets the use of the pools that the node uses.
    pub(crate) fn pools(&self, usages: Vec<Usage>) {
        self.0.pools.set(usages);
    }

    /// Adds a resource claim that could not be prepared, because of this part.
    pub fn claim_failed(&self, part: &'static str) {
        let failures = &self.0.claim_failures;
        failures.get_or_create(&[("reason", part)]).inc();
    }

    /// Sets the number of prepared claims, and the bandwidth of the links.
    pub(crate) fn claims(&self, traffic: Traffic) {
        self.0.claims.set(traffic);
    }

    /// Adds a finished plugin call.
    pub fn called(&self, report: &CallReport<'_>) {
        let is_success = report.code == 0;
        let labels = [
            ("verb", report.command.as_str()),
            ("type", type_label(report.plugin)),
            ("result", if is_success { "success" } else { "error" }),
        ];
        let calls = self.0.calls.get_or_create(&labels);
        calls.observe(report.duration.as_secs_f64());
        if !is_success {
            let code = [("code", code_label(report.code))];
            self.0.failures.get_or_create(&code).inc();
        }
    }

    /// Reads the node's state unless it is fresh. `conflist` is the node's conflist.
    pub(crate) async fn refresh(&self, conflist: PathBuf) {
        self.scrape().refresh(conflist).await;
    }

    /// Returns all metrics as text, with the state of the node that was read last.
    pub fn text(&self) -> String {
        self.0.text()
    }

    pub(super) fn scrape(&self) -> &Scrape {
        &self.0.scrape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_other_tasks_are_in_the_text() {
        let metrics = Metrics::default();
        let other = metrics.clone();
        other.repaired("route", 2);
        other.repaired("route", 1);
        other.collected("lease", 4);
        other.api_error();
        other.address_conflict();
        other.queue_depth(7);
        other.claim_failed("api");
        let text = metrics.text();
        for line in [
            "braid_repairs_total{kind=\"route\"} 3",
            "braid_repairs_total{kind=\"fdb\"} 0",
            "braid_collected_total{kind=\"lease\"} 4",
            "braid_collected_total{kind=\"claim\"} 0",
            "braid_api_errors_total 1",
            "braid_address_conflicts_total 1",
            "braid_queue_depth 7",
            "braid_dra_prepare_failures_total{reason=\"api\"} 1",
            "braid_dra_prepare_failures_total{reason=\"claim\"} 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }
}
