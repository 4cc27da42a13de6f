//! What shaping must keep, beside the baseline.

use super::cell::Rate;
use super::report::{Figures, Report, Row};
use crate::budget::{self, Bound, Budget};
use anyhow::Result;
use std::collections::BTreeMap;

/// How far goodput may be from the ideal.
const OFF_IDEAL: f64 = 0.03;
/// Round trips beside bulk, over the baseline's.
const ROUND_TRIP: f64 = 0.1;
/// Processor time for a Gbit in each of a conflist's settings, over the baseline's: all together, since in one window it
/// differs from the next by more than the plugins do.
const CPU: f64 = 1.0;
/// At lower rates most of it is the node's own work.
const CPU_FROM: Rate = Rate::M100;

/// Prints all budgets of the directories that are not the baseline.
pub(crate) fn judge(report: &Report, enforce: bool) -> Result<()> {
    let mut budgets: Vec<_> = report.rows.iter().flat_map(|row| of_row(report, row)).collect();
    budgets.extend(processor_time(report));
    let about = format!(
        "goodput: distance from the ideal; others: ratios to {}; TCP by {}",
        report.baseline, report.congestion
    );
    budget::judge(&about, &budgets, enforce)
}

fn of_row(report: &Report, row: &Row) -> Vec<Budget> {
    if row.plugins == report.baseline {
        return Vec::new();
    }
    let budget = |what: &str, figure, at_most| {
        let what = format!("{} {}, {}: {what}", row.plugins, row.conflist, row.title());
        Budget { what, figure, bound: Bound::AtMost(at_most) }
    };
    let baseline = report.baseline_of(row);
    let Some(figures) = row.figures else {
        // Where the baseline's main plugin fails as well, the kernel lacks something.
        let is_kernel = baseline.and_then(|row| row.failure.as_ref()).is_some_and(|failure| !failure.refused);
        return if is_kernel { Vec::new() } else { vec![budget("goodput", f64::INFINITY, OFF_IDEAL)] };
    };
    let mut budgets = vec![budget("goodput", (figures.of_ideal - 1.0).abs(), OFF_IDEAL)];
    let others = baseline.and_then(|row| row.figures);
    let ratio = |of: fn(&Figures) -> Option<f64>| Some(of(&figures)? / of(&others?)?);
    let ratios = [
        ("round trip p50", ratio(Figures::rr_p50_ms), ROUND_TRIP),
        ("round trip p99", ratio(Figures::rr_p99_ms), ROUND_TRIP),
    ];
    budgets.extend(ratios.into_iter().filter_map(|(what, ratio, most)| Some(budget(what, ratio?, most))));
    budgets
}

/// One for each directory and conflist.
fn processor_time(report: &Report) -> Vec<Budget> {
    let mut all: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for row in report.rows.iter().filter(|row| row.cell.rate >= CPU_FROM) {
        let time = |row: &Row| row.figures?.cpu();
        let both = report.baseline_of(row).and_then(time).and_then(|theirs| Some((time(row)?, theirs)));
        all.entry((&row.plugins, &row.conflist)).or_default().extend(both);
    }
    all.retain(|_, settings| !settings.is_empty());
    let budget = |((plugins, conflist), settings): (_, Vec<(f64, f64)>)| {
        let [own, theirs] = settings.iter().fold([0.0, 0.0], |sums, both| [sums[0] + both.0, sums[1] + both.1]);
        let what = format!("{plugins} {conflist}: processor time, {} settings together", settings.len());
        Budget { what, figure: own / theirs, bound: Bound::AtMost(CPU) }
    };
    all.into_iter().map(budget).collect()
}

#[cfg(test)]
mod tests {
    use super::super::cell::Cell;
    use super::super::report::tests::{self, failed, report};
    use super::*;

    fn row(plugins: &str, of_ideal: f64, rr_ms: u64, cpu: f64) -> Row {
        let row = tests::row(plugins, of_ideal, rr_ms, cpu);
        Row { cell: Cell { rate: CPU_FROM, ..row.cell }, ..row }
    }

    fn broken(rows: Vec<Row>) -> String {
        judge(&report(rows), true).err().map_or_else(|| "none".to_owned(), |err| err.to_string())
    }

    #[test]
    fn figures_on_the_budget_pass() {
        assert_eq!(broken(vec![row("ref", 0.5, 40, 3.0), row("braid", 0.971, 4, 3.0)]), "none");
    }

    #[test]
    fn each_broken_promise_is_counted_only_when_enforced() {
        let reference = row("ref", 1.0, 40, 3.0);
        assert_eq!(broken(vec![reference.clone(), row("braid", 1.04, 4, 3.0)]), "1 of 4 budgets not kept");
        assert_eq!(broken(vec![reference.clone(), row("braid", 0.96, 5, 3.1)]), "4 of 4 budgets not kept");
        assert!(judge(&report(vec![reference, row("braid", 0.5, 50, 9.0)]), false).is_ok());
    }

    #[test]
    fn processor_time_is_judged_for_all_settings_together() {
        let several = |ours: [f64; 3]| {
            let mut rows = Vec::new();
            for (flows, ours) in [1, 4, 16].into_iter().zip(ours) {
                for (name, cpu) in [("ref", 3.0), ("braid", ours)] {
                    let mut row = row(name, 1.0, 4, cpu);
                    row.cell.flows = flows;
                    row.figures = row.figures.map(|figures| Figures { rr: None, ..figures });
                    rows.push(row);
                }
            }
            broken(rows)
        };
        assert_eq!(several([2.0, 4.1, 2.9]), "none");
        assert_eq!(several([2.0, 4.2, 2.9]), "1 of 4 budgets not kept");
        // At 10 Mbit/s it says nothing.
        assert_eq!(broken(vec![tests::row("ref", 1.0, 40, 3.0), tests::row("braid", 1.0, 4, 48.0)]), "none");
    }

    #[test]
    fn without_a_baseline_goodput_is_what_counts() {
        let refused = failed("ref", "ADD bandwidth: code 999: no veth");
        assert_eq!(broken(vec![refused.clone(), row("braid", 1.0, 99, 99.0)]), "none");
        assert_eq!(broken(vec![refused, failed("braid", "ADD bandwidth: no")]), "1 of 1 budgets not kept");
    }

    #[test]
    fn what_the_kernel_lacks_is_nobody_s_fault() {
        let rows = ["ref", "braid"].map(|name| failed(name, "ADD ipvlan: operation not supported"));
        assert_eq!(broken(rows.into()), "none");
    }
}
