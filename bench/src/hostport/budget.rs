//! What the ports of a host must keep, beside the baselines and beside few ports.

use super::figures::{Row, Spread};
use super::report::Report;
use crate::budget::{self, Bound, Budget};
use crate::run::FLOOR;
use anyhow::Result;

/// With the fewest ports: connections and goodput over the best baseline's. The rest is noise.
const OF_BASELINE: f64 = 0.97;
/// With more ports: over those with the fewest.
const OF_FEWEST: f64 = 0.9;

/// Prints all budgets of the directories that are no baseline.
pub(crate) fn judge(report: &Report, enforce: bool) -> Result<()> {
    let is_judged = |row: &&Row| row.plugins != FLOOR && !report.baselines.contains(&row.plugins);
    let budgets: Vec<_> = report.rows.iter().filter(is_judged).flat_map(of_row).collect();
    budget::judge("ratios of medians in the same rounds", &budgets, enforce)
}

fn of_row(row: &Row) -> Vec<Budget> {
    let figures = [("connections", &row.figures.connections_per_s), ("goodput", &row.figures.gbit_per_s)];
    let judged = |(what, spread): (&str, &Spread)| {
        let budget = |against: &str, figure, at_least| Budget {
            what: format!("{} {}: {what} / {against}", row.plugins, row.place()),
            figure,
            bound: Bound::AtLeast(at_least),
        };
        match spread.of_fewest {
            Some(ratio) => Some(budget("fewest ports", ratio, OF_FEWEST)),
            None => spread.of_baseline.map(|ratio| budget("best baseline", ratio, OF_BASELINE)),
        }
    };
    figures.into_iter().filter_map(judged).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sampled;
    use super::super::report::tests::report;
    use super::*;

    /// The reference has 100 connections a second with one port and 10 with many.
    fn broken(one: f64, many: f64, enforce: bool) -> String {
        let all = [(FLOOR, 0, 200.0), ("ref", 1, 100.0), ("ref", 1000, 10.0), ("own", 1, one), ("own", 1000, many)];
        let all = all.map(|(plugins, ports, connections)| sampled(plugins, ports, &[connections]));
        judge(&report(&all), enforce).err().map_or_else(|| "none".to_owned(), |err| err.to_string())
    }

    #[test]
    fn figures_on_the_budget_pass() {
        assert_eq!(broken(97.0, 97.0 * 0.9, true), "none");
        assert_eq!(broken(200.0, 190.0, true), "none");
    }

    #[test]
    fn each_broken_promise_is_counted_only_when_enforced() {
        assert_eq!(broken(96.0, 96.0, true), "2 of 4 budgets not kept");
        assert_eq!(broken(100.0, 89.0, true), "2 of 4 budgets not kept");
        assert_eq!(broken(50.0, 10.0, true), "4 of 4 budgets not kept");
        assert_eq!(broken(50.0, 10.0, false), "none");
    }

    #[test]
    fn many_ports_are_not_excused_by_a_slow_baseline() {
        assert_eq!(broken(100.0, 50.0, true), "2 of 4 budgets not kept");
    }
}
