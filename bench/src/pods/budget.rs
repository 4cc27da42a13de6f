//! Budgets of braid compared with Multus, the floor and itself.

use super::{ADD, DEL, MS};
use crate::budget::{Bound, Budget};
use crate::floor::FLOOR;
use crate::report::Report;

/// braid without an agent, which asks the API server.
const BRAID: &str = "braid";
/// Multus as a plugin, which queries the API server itself.
const THIN: &str = "thin";
/// Multus as a daemon, which has pods and networks cached.
const THICK: &str = "thick";
/// braid with a query for a pod that requests no network.
const NO_ANNOTATION: &str = "no-annotation";
/// braid with an agent, and a pod that requests no network.
const NO_ANNOTATION_AGENT: &str = "no-annotation-agent";
/// The same, where the runtime passes the annotations.
const NO_ANNOTATION_TOLD: &str = "no-annotation-told";
/// braid with an agent.
const AGENT: &str = "agent";
/// braid without Kubernetes: the default network.
const NO_KUBERNETES: &str = "no-kubernetes";
/// The chains of the two other networks, each in a call of its own.
const CHAINS: [&str; 2] = ["lan", "served"];

/// Chains of one network with addresses of Whereabouts' pools: by Whereabouts and the reference plugins,
/// by braid without an agent, and by braid with one, which holds addresses.
const WHEREABOUTS: &str = "ipam-whereabouts";
const POOL: &str = "ipam-pool";
const HELD: &str = "ipam-held";
/// The same network with `host-local`, by the reference plugins and by braid.
const LOCAL: [&str; 2] = ["ipam-local", "lan"];

/// Maximum delay of an ADD by cluster-wide addresses of braid, relative to the delay by Whereabouts:
/// without and with an agent.
const POOL_OF_WHEREABOUTS: f64 = 1.0 / 4.0;
const HELD_OF_WHEREABOUTS: f64 = 1.0 / 30.0;
const OF_THIN: f64 = 1.0 / 8.0;
const OF_THICK: f64 = 1.0 / 6.0;
/// Maximum time of ADD with an agent, relative to thin Multus.
const AGENT_OF_THIN: f64 = 1.0 / 10.0;
/// Maximum time of ADD with an agent, relative to the sum of the three chains, each in a call of
/// its own.
const AGENT_OF_CHAINS: f64 = 1.5;
/// Maximum time of DEL of all interfaces, relative to DEL of one veth.
const OF_FLOOR: f64 = 1.2;
/// Maximum extra time of ADD for a pod without annotation, in milliseconds, compared with ADD
/// without Kubernetes. In the extra time, braid gets the pod and updates its status.
const LOOK_MS: f64 = 2.5;
/// The same with an agent.
const AGENT_LOOK_MS: f64 = 0.3;

/// Returns the budgets for which the report has rows.
pub(super) fn of(report: &Report) -> Vec<Budget> {
    let p50 = |verb, plugins| {
        let row = report
            .rows
            .iter()
            .find(|row| row.plugins == plugins && row.value("verb") == Some(verb));
        row.and_then(|row| row.p50(MS))
    };
    let ratio = |verb, of, over, at_most| {
        let figure = p50(verb, of)? / p50(verb, over)?;
        Some(Budget {
            what: format!("{verb} {of} / {over}"),
            figure,
            bound: Bound::AtMost(at_most),
        })
    };
    let look = |of, at_most| {
        let figure = p50(ADD, of)? - p50(ADD, NO_KUBERNETES)?;
        Some(Budget {
            what: format!("{ADD} {of} - {NO_KUBERNETES}, ms"),
            figure,
            bound: Bound::AtMost(at_most),
        })
    };
    let chains = || {
        let mut sum = p50(ADD, NO_KUBERNETES)?;
        for chain in CHAINS {
            sum += p50(ADD, chain)?;
        }
        Some(Budget {
            what: format!("{ADD} {AGENT} / its three chains"),
            figure: p50(ADD, AGENT)? / sum,
            bound: Bound::AtMost(AGENT_OF_CHAINS),
        })
    };
    let delay = |of, at_most| {
        let [local, lan] = LOCAL;
        let by_whereabouts = p50(ADD, WHEREABOUTS)? - p50(ADD, local)?;
        Some(Budget {
            what: format!("{ADD} ({of} - {lan}) / ({WHEREABOUTS} - {local})"),
            figure: (p50(ADD, of)? - p50(ADD, lan)?) / by_whereabouts,
            bound: Bound::AtMost(at_most),
        })
    };
    let ratios = [
        ratio(ADD, BRAID, THICK, OF_THICK),
        ratio(ADD, BRAID, THIN, OF_THIN),
        ratio(DEL, BRAID, FLOOR, OF_FLOOR),
        look(NO_ANNOTATION, LOOK_MS),
        ratio(ADD, AGENT, THIN, AGENT_OF_THIN),
        chains(),
        look(NO_ANNOTATION_AGENT, AGENT_LOOK_MS),
        look(NO_ANNOTATION_TOLD, AGENT_LOOK_MS),
        delay(POOL, POOL_OF_WHEREABOUTS),
        delay(HELD, HELD_OF_WHEREABOUTS),
    ];
    ratios.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::row;
    use super::*;
    use crate::budget::judge;
    use crate::report::tests::report;

    /// Times of ADD in milliseconds that keep each budget exactly.
    const KEPT: [(&str, f64); 13] = [
        (THIN, 150.0),
        (THICK, 112.5),
        (BRAID, 18.75),
        (NO_ANNOTATION, 4.5),
        (AGENT, 15.0),
        (NO_ANNOTATION_AGENT, 2.25),
        (NO_ANNOTATION_TOLD, 2.25),
        (NO_KUBERNETES, 2.0),
        ("lan", 4.0),
        ("ipam-local", 8.0),
        (WHEREABOUTS, 128.0),
        (POOL, 34.0),
        (HELD, 8.0),
    ];

    /// Returns the error about broken budgets. ADD of the directory `slow` takes a little longer,
    /// and `del` is braid's time for DEL. The floor of DEL is 20 ms.
    fn broken(slow: &str, del: f64) -> String {
        let mut rows = Vec::new();
        let mut add = |verb, plugins, ms| {
            let mut row = row(verb, plugins);
            row.add(Ok(vec![(MS, ms)]));
            rows.push(row);
        };
        for (plugins, ms) in KEPT {
            let ms = if plugins == slow { ms + 0.1 } else { ms };
            add(ADD, plugins, ms);
        }
        add(ADD, "served", 4.0);
        add(DEL, FLOOR, 20.0);
        add(DEL, BRAID, del);
        let judged = judge("", &of(&report(&[THICK], rows)), true);
        judged
            .err()
            .map_or_else(|| "none".to_owned(), |err| err.to_string())
    }

    #[test]
    fn figures_on_the_budget_pass() {
        assert_eq!(broken("", 24.0), "none");
    }

    #[test]
    fn each_broken_promise_is_counted() {
        assert_eq!(broken(BRAID, 24.0), "2 of 10 budgets not kept");
        assert_eq!(broken("", 24.1), "1 of 10 budgets not kept");
        assert_eq!(broken(NO_ANNOTATION, 24.0), "1 of 10 budgets not kept");
        assert_eq!(broken(AGENT, 24.0), "2 of 10 budgets not kept");
        assert_eq!(
            broken(NO_ANNOTATION_AGENT, 24.0),
            "1 of 10 budgets not kept"
        );
        assert_eq!(broken(NO_ANNOTATION_TOLD, 24.0), "1 of 10 budgets not kept");
        assert_eq!(broken(POOL, 24.0), "1 of 10 budgets not kept");
        assert_eq!(broken(HELD, 24.0), "1 of 10 budgets not kept");
    }

    #[test]
    fn unmeasured_figures_have_no_budget() {
        assert_eq!(of(&report(&[], vec![row(ADD, BRAID)])), []);
    }
}
