//! Budgets of host ports, compared with the baselines and with few ports.

use super::{CONNECTIONS, GOODPUT};
use crate::budget::{Bound, Budget};
use crate::floor::FLOOR;
use crate::report::{Beside, Report, Row};

/// Minimum of connections and goodput with the fewest ports, relative to the best baseline. It is
/// below 1 to allow for noise.
const OF_BASELINE: f64 = 0.97;
/// Minimum of connections and goodput with more ports, relative to the values with the fewest
/// ports.
const OF_FEWEST: f64 = 0.9;

/// Returns all budgets of the directories that are not baselines.
pub(super) fn of(report: &Report) -> Vec<Budget> {
    let is_judged = |row: &&Row| row.plugins != FLOOR && !report.baselines.contains(&row.plugins);
    report
        .rows
        .iter()
        .filter(is_judged)
        .flat_map(|row| of_row(report, row))
        .collect()
}

fn of_row(report: &Report, row: &Row) -> Vec<Budget> {
    let judged = |(what, figure): (&str, &str)| {
        let (against, ratio, at_least) = match report.ratio(row, figure, Beside::First) {
            Some(ratio) => ("fewest ports", ratio, OF_FEWEST),
            None => (
                "best baseline",
                report.ratio(row, figure, Beside::Baseline)?,
                OF_BASELINE,
            ),
        };
        let what = format!("{}: {what} / {against}", row.title());
        Some(Budget {
            what,
            figure: ratio,
            bound: Bound::AtLeast(at_least),
        })
    };
    [("connections", CONNECTIONS), ("goodput", GOODPUT)]
        .into_iter()
        .filter_map(judged)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::judge;
    use crate::report::tests::report;

    /// Returns the error about broken budgets. The directory `own` opens `one` connections per
    /// second with one port, and `many` with a thousand ports. The reference opens 100 and 10.
    fn broken(one: f64, many: f64, enforce: bool) -> String {
        let all = [
            (FLOOR, 0, 200.0),
            ("ref", 1, 100.0),
            ("ref", 1000, 10.0),
            ("own", 1, one),
            ("own", 1000, many),
        ];
        let rows = all.map(|(plugins, ports, connections)| {
            let mut row = super::super::row(plugins, ports);
            row.add(Ok(vec![
                (CONNECTIONS, connections),
                (GOODPUT, connections / 1e3),
            ]));
            row
        });
        let judged = judge("", &of(&report(&["ref"], rows.into())), enforce);
        judged
            .err()
            .map_or_else(|| "none".to_owned(), |err| err.to_string())
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
