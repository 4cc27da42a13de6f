//! Budgets of braid compared with Multus, the floor and itself.

use super::{ADD, DEL, MS};
use crate::budget::{Bound, Budget};
use crate::floor::FLOOR;
use crate::report::Report;

/// Name of braid's plugin directory. Its times have budgets relative to the directories below.
const BRAID: &str = "braid";
/// Multus as a plugin, which queries the API server itself.
const THIN: &str = "thin";
/// Multus as a daemon, which has pods and networks cached.
const THICK: &str = "thick";
/// braid with a query for a pod that requests no network.
const NO_ANNOTATION: &str = "no-annotation";
/// braid without Kubernetes.
const NO_KUBERNETES: &str = "no-kubernetes";

const OF_THIN: f64 = 1.0 / 8.0;
const OF_THICK: f64 = 1.0 / 6.0;
/// Maximum time of DEL of all interfaces, relative to DEL of one veth.
const OF_FLOOR: f64 = 1.2;
/// Maximum extra time of ADD for a pod without annotation, in milliseconds, compared with ADD
/// without Kubernetes. In the extra time, braid gets the pod and updates its status.
const LOOK_MS: f64 = 2.5;

/// Returns the budgets for which the report has rows.
pub(super) fn of(report: &Report) -> Vec<Budget> {
    let p50 = |verb, plugins| {
        let row = report
            .rows
            .iter()
            .find(|row| row.plugins == plugins && row.value("verb") == Some(verb));
        row.and_then(|row| row.p50(MS))
    };
    let ratio = |verb, over, at_most| {
        let figure = p50(verb, BRAID)? / p50(verb, over)?;
        Some(Budget {
            what: format!("{verb} braid / {over}"),
            figure,
            bound: Bound::AtMost(at_most),
        })
    };
    let look = || {
        let figure = p50(ADD, NO_ANNOTATION)? - p50(ADD, NO_KUBERNETES)?;
        let what = format!("{ADD} {NO_ANNOTATION} - {NO_KUBERNETES}, ms");
        Some(Budget {
            what,
            figure,
            bound: Bound::AtMost(LOOK_MS),
        })
    };
    let ratios = [
        ratio(ADD, THICK, OF_THICK),
        ratio(ADD, THIN, OF_THIN),
        ratio(DEL, FLOOR, OF_FLOOR),
        look(),
    ];
    ratios.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::row;
    use super::*;
    use crate::budget::judge;
    use crate::report::tests::report;

    /// Returns the error about broken budgets. `add` and `del` are braid's times in milliseconds,
    /// and `look` is its extra time for a pod without annotation. Thick Multus takes 60 ms, thin
    /// Multus 80 ms, and the floor of DEL 20 ms.
    fn broken(add: f64, del: f64, look: f64) -> String {
        let adds = [
            (THIN, 80.0),
            (THICK, 60.0),
            (BRAID, add),
            (NO_ANNOTATION, 2.0 + look),
            (NO_KUBERNETES, 2.0),
        ];
        let adds = adds.map(|(plugins, ms)| (ADD, plugins, ms));
        let rows =
            adds.into_iter()
                .chain([(ADD, FLOOR, 1.0), (DEL, FLOOR, 20.0), (DEL, BRAID, del)]);
        let rows = rows.map(|(verb, plugins, ms)| {
            let mut row = row(verb, plugins);
            row.add(Ok(vec![(MS, ms)]));
            row
        });
        let judged = judge("", &of(&report(&[THICK], rows.collect())), true);
        judged
            .err()
            .map_or_else(|| "none".to_owned(), |err| err.to_string())
    }

    #[test]
    fn figures_on_the_budget_pass() {
        assert_eq!(broken(10.0, 24.0, 2.5), "none");
    }

    #[test]
    fn each_broken_promise_is_counted() {
        assert_eq!(broken(10.1, 24.0, 2.5), "2 of 4 budgets not kept");
        assert_eq!(broken(10.0, 24.1, 2.5), "1 of 4 budgets not kept");
        assert_eq!(broken(10.0, 24.0, 2.6), "1 of 4 budgets not kept");
    }

    #[test]
    fn unmeasured_figures_have_no_budget() {
        assert_eq!(of(&report(&[], vec![row(ADD, BRAID)])), []);
    }
}
