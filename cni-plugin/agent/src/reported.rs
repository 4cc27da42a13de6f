//! Conditions of the node that need an administrator, as of the last comparison: logged once, in
//! `/readyz`, and as events.

use crate::cluster::ranges::Ignored;
use crate::events::{self, Warning};
use crate::health::Reason;
use crate::network::peers::Unrouted;
use std::collections::BTreeSet;

/// Reported conditions.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    ignored: BTreeSet<Ignored>,
    unrouted: BTreeSet<Unrouted>,
    pub(crate) networks: BTreeSet<String>,
    pub(crate) without_range: Reason,
    /// Reason why no devices are offered.
    pub(crate) obstacle: Reason,
    pub(crate) reason: Reason,
}

impl Reported {
    /// Returns the events. `fault` is the one of the configuration.
    pub(crate) fn warnings(&self, fault: Option<&str>) -> BTreeSet<Warning> {
        let mut warnings = BTreeSet::new();
        let mut warn = |reason, note: String| warnings.insert(Warning { reason, note });
        for ignored in &self.ignored {
            let note = format!("Node {}: {ignored}", ignored.node);
            warn(events::Reason::IgnoredRange, note);
        }
        for note in &self.networks {
            warn(events::Reason::ForeignNetwork, note.clone());
        }
        if let Some(fault) = fault {
            warn(events::Reason::InvalidConfiguration, fault.to_owned());
        }
        if let Some(note) = &self.without_range {
            warn(events::Reason::NoPodRange, note.clone());
        }
        // Before the node is ready, there is no conflist yet.
        if self.reason.is_none()
            && let Some(why) = &self.obstacle
        {
            warn(events::Reason::NotOffered, why.clone());
        }
        warnings
    }

    /// Returns the remarks in `/readyz` about a node that may be ready.
    pub(crate) fn remarks(&self, fault: Option<&str>) -> Vec<String> {
        let obstacle = self.obstacle.as_ref();
        let obstacle = obstacle.map(|why| format!("no devices are offered: {why}"));
        fault
            .map(str::to_owned)
            .into_iter()
            .chain(obstacle)
            .collect()
    }

    /// Logs ranges and routes that were not logged at the last comparison.
    pub(crate) fn report(&mut self, ignored: Vec<Ignored>, unrouted: Vec<Unrouted>) {
        let (ignored, unrouted) = (BTreeSet::from_iter(ignored), BTreeSet::from_iter(unrouted));
        for it in ignored.difference(&self.ignored) {
            tracing::warn!(node = it.node, reason = %it, "ignored a pod range");
        }
        for it in unrouted.difference(&self.unrouted) {
            tracing::warn!(node = it.node, range = %it.range, reason = it.reason, "set no route");
        }
        self.ignored = ignored;
        self.unrouted = unrouted;
    }
}
