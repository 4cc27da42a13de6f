//! Budgets of traffic between nodes, compared with the baseline of the same path.

use super::measure::{P50, P95, THROUGHPUT};
use crate::budget::{Bound, Budget};
use crate::report::{Beside, Report, Row};

/// Deviation from 1 of the ratio of two equal networks in throughput and 95th percentile. It was
/// within this bound in nine of ten samples drawn from the 20 rounds of a run on two processors
/// (0.95 to 1.06, and 0.95 to 1.04), while single rounds differed by up to 29 %.
const NOISE: f64 = 0.05;
/// The same for the median latency, which is steadier (0.999 to 1.005; single rounds 16 %).
const P50_NOISE: f64 = 0.02;

/// Returns all budgets of the directories that are neither baselines nor `unjudged`.
pub(super) fn judged(report: &Report, unjudged: &[String]) -> Vec<Budget> {
    let mut budgets = Vec::new();
    for row in &report.rows {
        if !report.baselines.contains(&row.plugins) && !unjudged.contains(&row.plugins) {
            budgets.extend(row_budgets(report, row));
        }
    }
    budgets
}

fn row_budgets(report: &Report, row: &Row) -> Vec<Budget> {
    let mut budgets = Vec::new();
    for (name, figure, bound) in [
        ("throughput", THROUGHPUT, Bound::AtLeast(1.0 - NOISE)),
        ("latency p50", P50, Bound::AtMost(1.0 + P50_NOISE)),
        ("latency p95", P95, Bound::AtMost(1.0 + NOISE)),
    ] {
        let baseline = report.beside(row, figure, Beside::Baseline);
        let ratio = report.ratio(row, figure, Beside::Baseline);
        if let (Some(baseline), Some(ratio)) = (baseline, ratio) {
            budgets.push(Budget {
                what: format!("{name}: {} / {}", row.plugins, baseline.plugins),
                figure: ratio,
                bound,
            });
        }
    }
    budgets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::judge;
    use crate::report::tests::report;

    fn row(path: &str, plugins: &str, throughput: f64, micros: f64) -> Row {
        let mut row = Row::new(vec![("path", path.to_owned())], plugins);
        row.add(Ok(vec![
            (THROUGHPUT, throughput),
            (P50, micros),
            (P95, 2.0 * micros),
        ]));
        row
    }

    /// Returns the error about broken budgets of two paths. The direct path of `own` has these
    /// figures, the other has its baseline's figures.
    fn broken(throughput: f64, micros: f64) -> String {
        let rows = vec![
            row("direct", "plain", 20.0, 20.0),
            row("direct", "twin", 10.0, 40.0),
            row("direct", "own", throughput, micros),
            row("VXLAN", "tunnel", 10.0, 40.0),
            row("VXLAN", "own-tunnel", 10.0, 40.0),
        ];
        let report = report(&["plain", "tunnel"], rows);
        let judged = judge("", &judged(&report, &["twin".to_owned()]), true);
        judged
            .err()
            .map_or_else(|| "none".to_owned(), |err| err.to_string())
    }

    #[test]
    fn a_network_as_fast_as_the_baseline_of_its_path_passes() {
        assert_eq!(broken(20.0, 20.0), "none");
        assert_eq!(broken(19.1, 20.3), "none");
    }

    #[test]
    fn each_broken_promise_is_counted() {
        assert_eq!(broken(18.0, 20.0), "1 of 6 budgets not kept");
        assert_eq!(broken(20.0, 20.5), "1 of 6 budgets not kept");
        assert_eq!(broken(20.0, 22.0), "2 of 6 budgets not kept");
    }
}
