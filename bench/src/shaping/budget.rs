//! Budgets of shaping, compared with the baseline.

use super::cell::Rate;
use super::{CPU, GOODPUT, OF_IDEAL, RR_P50, RR_P99};
use crate::budget::{Bound, Budget};
use crate::report::{Beside, Report, Row};
use std::collections::BTreeMap;

/// Maximum distance of goodput from the ideal, relative to the ideal.
const OFF_IDEAL: f64 = 0.03;
/// Maximum additional round-trip time beside bulk traffic, relative to the baseline.
const ROUND_TRIP: f64 = 0.1;
/// Maximum CPU time per Gbit relative to the baseline, over all settings of a conflist. Single
/// measurements differ by more than the plugins do.
const PROCESSOR_TIME: f64 = 1.0;
/// Lowest rate at which CPU time is judged. At lower rates, most CPU time is the node's own work.
const CPU_FROM: Rate = Rate::M100;

/// Returns all budgets of the directories that are not the baseline.
pub(super) fn of(report: &Report) -> Vec<Budget> {
    let judged = || {
        report
            .rows
            .iter()
            .filter(|row| !report.baselines.contains(&row.plugins))
    };
    let mut budgets: Vec<_> = judged().flat_map(|row| of_row(report, row)).collect();
    budgets.extend(processor_time(report, judged()));
    budgets
}

fn of_row(report: &Report, row: &Row) -> Vec<Budget> {
    let budget = |what: &str, figure, at_most| {
        let what = format!("{}: {what}", row.title());
        Budget {
            what,
            figure,
            bound: Bound::AtMost(at_most),
        }
    };
    let Some(of_ideal) = row.p50(OF_IDEAL) else {
        // If the baseline's main plugin fails as well, the kernel lacks a feature.
        let baseline = report
            .beside(row, GOODPUT, Beside::Baseline)
            .and_then(|row| row.failure.as_ref());
        let is_kernel = baseline.is_some_and(|failure| !failure.refused);
        return if is_kernel {
            Vec::new()
        } else {
            vec![budget("goodput", f64::INFINITY, OFF_IDEAL)]
        };
    };
    let mut budgets = vec![budget("goodput", (of_ideal - 1.0).abs(), OFF_IDEAL)];
    for (what, figure) in [("round trip p50", RR_P50), ("round trip p99", RR_P99)] {
        budgets.extend(
            report
                .ratio(row, figure, Beside::Baseline)
                .map(|ratio| budget(what, ratio, ROUND_TRIP)),
        );
    }
    budgets
}

/// Returns a budget of CPU time for each plugin directory and conflist.
fn processor_time<'a>(report: &Report, rows: impl Iterator<Item = &'a Row>) -> Vec<Budget> {
    let mut all: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows {
        let rate = row.value("rate").and_then(|rate| rate.parse::<Rate>().ok());
        let theirs = report
            .beside(row, CPU, Beside::Baseline)
            .and_then(|baseline| baseline.p50(CPU));
        if let (Some(own), Some(theirs), true) = (row.p50(CPU), theirs, rate >= Some(CPU_FROM)) {
            let conflist = row.value("conflist").unwrap_or_default();
            all.entry((&row.plugins, conflist))
                .or_default()
                .push((own, theirs));
        }
    }
    let budget = |((plugins, conflist), settings): (_, Vec<(f64, f64)>)| {
        let [own, theirs] = settings.iter().fold([0.0, 0.0], |sums, both| {
            [sums[0] + both.0, sums[1] + both.1]
        });
        let what = format!(
            "{plugins} {conflist}: processor time, {} settings together",
            settings.len()
        );
        Budget {
            what,
            figure: own / theirs,
            bound: Bound::AtMost(PROCESSOR_TIME),
        }
    };
    all.into_iter().map(budget).collect()
}

#[cfg(test)]
mod tests {
    use super::super::cell::{Cell, Direction, Family};
    use super::*;
    use crate::budget::judge;
    use crate::report::{Failure, Figures, tests::report};
    use crate::traffic::Protocol;
    use anyhow::Error;

    fn row(plugins: &str, rate: Rate, flows: u16, round: Result<Figures, Failure>) -> Row {
        let cell = Cell {
            rate,
            direction: Direction::Ingress,
            protocol: Protocol::Tcp,
            flows,
            family: Family::V4,
        };
        let mut row = Row::new(cell.setting("bridge", None), plugins);
        row.add(round);
        row
    }

    fn measured(plugins: &str, of_ideal: f64, rr_ms: f64, cpu: f64) -> Row {
        let figures = vec![
            (OF_IDEAL, of_ideal),
            (RR_P50, rr_ms),
            (RR_P99, rr_ms),
            (CPU, cpu),
        ];
        row(plugins, CPU_FROM, 1, Ok(figures))
    }

    fn failed(plugins: &str, reason: &'static str) -> Row {
        row(plugins, CPU_FROM, 1, Err(Failure::of(&Error::msg(reason))))
    }

    fn broken(rows: Vec<Row>) -> String {
        judge("", &of(&report(&["ref"], rows)), true)
            .err()
            .map_or_else(|| "none".to_owned(), |err| err.to_string())
    }

    #[test]
    fn figures_on_the_budget_pass() {
        assert_eq!(
            broken(vec![
                measured("ref", 0.5, 40.0, 3.0),
                measured("braid", 0.971, 4.0, 3.0)
            ]),
            "none"
        );
    }

    #[test]
    fn each_broken_promise_is_counted_only_when_enforced() {
        let reference = measured("ref", 1.0, 40.0, 3.0);
        assert_eq!(
            broken(vec![reference.clone(), measured("braid", 1.04, 4.0, 3.0)]),
            "1 of 4 budgets not kept"
        );
        assert_eq!(
            broken(vec![reference.clone(), measured("braid", 0.96, 5.0, 3.1)]),
            "4 of 4 budgets not kept"
        );
        let report = report(&["ref"], vec![reference, measured("braid", 0.5, 50.0, 9.0)]);
        assert!(judge("", &of(&report), false).is_ok());
    }

    #[test]
    fn processor_time_is_judged_for_all_settings_together() {
        let several = |rate: Rate, ours: [f64; 3]| {
            let mut rows = Vec::new();
            for (flows, ours) in [1, 4, 16].into_iter().zip(ours) {
                for (name, cpu) in [("ref", 3.0), ("braid", ours)] {
                    rows.push(row(
                        name,
                        rate,
                        flows,
                        Ok(vec![(OF_IDEAL, 1.0), (CPU, cpu)]),
                    ));
                }
            }
            broken(rows)
        };
        assert_eq!(several(CPU_FROM, [2.0, 4.1, 2.9]), "none");
        assert_eq!(
            several(CPU_FROM, [2.0, 4.2, 2.9]),
            "1 of 4 budgets not kept"
        );
        // At 10 Mbit/s CPU time is not judged.
        assert_eq!(several(Rate::M10, [9.0, 9.0, 9.0]), "none");
    }

    #[test]
    fn without_a_baseline_goodput_decides() {
        let refused = failed("ref", "ADD bandwidth: code 999: no veth");
        assert_eq!(
            broken(vec![refused.clone(), measured("braid", 1.0, 99.0, 99.0)]),
            "none"
        );
        assert_eq!(
            broken(vec![refused, failed("braid", "ADD bandwidth: no")]),
            "1 of 1 budgets not kept"
        );
    }

    #[test]
    fn a_missing_kernel_feature_breaks_no_budget() {
        let rows = ["ref", "braid"].map(|name| failed(name, "ADD ipvlan: operation not supported"));
        assert_eq!(broken(rows.into()), "none");
    }
}
