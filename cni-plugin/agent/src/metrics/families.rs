//! Families of metrics with their labels.

use super::claims::Claims;
use super::pools::Pools;
use super::scrape::Scrape;
use crate::repair::Kind;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

/// Kinds of objects that the agent collects as garbage.
pub(super) const COLLECTED: [&str; 4] = ["attachment", "lease", "claim", "status"];
/// Parts that a preparation of a resource claim fails at.
const CLAIM_FAILURES: [&str; 4] = ["claim", "link", "api", "node"];
/// Upper bounds of the durations of calls, in seconds. An ADD takes 1 to 3 ms without foreign
/// plugins, and the runtime gives a call up after minutes.
const BOUNDS: [f64; 16] = [
    0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
];
/// Calls that are in the metrics before the first one ends: verb, type and result.
const FIRST_CALLS: [[&str; 3]; 4] = [
    ["ADD", "ptp", "success"],
    ["ADD", "ptp", "error"],
    ["DEL", "ptp", "success"],
    ["DEL", "ptp", "error"],
];
/// CNI error codes; all others are `other`.
pub(super) const CODES: [&str; 13] = [
    "1", "2", "3", "4", "5", "6", "7", "8", "11", "50", "51", "999", "other",
];

/// Names and values of labels.
type Labels<const COUNT: usize> = [(&'static str, &'static str); COUNT];

/// All families; `scrape` has the families of the node's state, and `pools` and `claims` have theirs.
#[derive(Debug)]
pub(super) struct Families {
    pub(super) calls: Family<Labels<3>, Histogram, fn() -> Histogram>,
    pub(super) failures: Family<Labels<1>, Counter>,
    pub(super) repairs: Family<Labels<1>, Counter>,
    pub(super) collected: Family<Labels<1>, Counter>,
    pub(super) address_conflicts: Counter,
    pub(super) api_errors: Counter,
    pub(super) queue_depth: Gauge<u64, AtomicU64>,
    pub(super) claim_failures: Family<Labels<1>, Counter>,
    pub(super) pools: Pools,
    pub(super) claims: Claims,
    pub(super) scrape: Scrape,
    registry: Registry,
}

impl Default for Families {
    fn default() -> Self {
        let mut families = Self {
            calls: Family::new_with_constructor(|| Histogram::new(BOUNDS)),
            failures: Family::default(),
            repairs: Family::default(),
            collected: Family::default(),
            address_conflicts: Counter::default(),
            api_errors: Counter::default(),
            queue_depth: Gauge::default(),
            claim_failures: Family::default(),
            pools: Pools::default(),
            claims: Claims::default(),
            scrape: Scrape::default(),
            registry: Registry::default(),
        };
        families.register();
        families.begin();
        families
    }
}

impl Families {
    /// Names the families. The encoder adds `_total` to a counter, and a full stop to each help.
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register_collector(self.scrape.collector());
        registry.register_collector(Box::new(self.pools.clone()));
        registry.register_collector(Box::new(self.claims.clone()));
        registry.register(
            "braid_call_duration_seconds",
            "Duration of plugin calls by verb, type of the first plugin, and result",
            self.calls.clone(),
        );
        registry.register(
            "braid_call_failures",
            "Failed plugin calls by CNI error code",
            self.failures.clone(),
        );
        registry.register(
            "braid_repairs",
            "Objects that the agent has restored after another program changed them",
            self.repairs.clone(),
        );
        registry.register(
            "braid_collected",
            "Objects of containers that are gone, deleted by the agent",
            self.collected.clone(),
        );
        registry.register(
            "braid_address_conflicts",
            "IPv6 addresses of pods that duplicate address detection has found on another host",
            self.address_conflicts.clone(),
        );
        registry.register(
            "braid_api_errors",
            "Failed requests and watches of the agent at the API server",
            self.api_errors.clone(),
        );
        registry.register(
            "braid_queue_depth",
            "Pods that wait for a comparison with their annotation",
            self.queue_depth.clone(),
        );
        registry.register(
            "braid_dra_prepare_failures",
            "Resource claims that could not be prepared, by the part that failed",
            self.claim_failures.clone(),
        );
    }

    /// Creates the samples that are there from the start.
    fn begin(&self) {
        for [verb, kind, result] in FIRST_CALLS {
            let labels = [("verb", verb), ("type", kind), ("result", result)];
            drop(self.calls.get_or_create(&labels));
        }
        for code in CODES {
            drop(self.failures.get_or_create(&[("code", code)]));
        }
        for kind in Kind::ALL {
            drop(self.repairs.get_or_create(&[("kind", kind.word())]));
        }
        for kind in COLLECTED {
            drop(self.collected.get_or_create(&[("kind", kind)]));
        }
        for part in CLAIM_FAILURES {
            drop(self.claim_failures.get_or_create(&[("reason", part)]));
        }
    }

    /// Returns all families as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // A String takes everything.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        text
    }
}
