//! The figures as a table and as JSON.

use super::cell::{Cell, Rate};
use crate::report::{Machine, shown, table};
use crate::stats::Summary;
use anyhow::Error;
use comfy_table::Table;
use serde::Serialize;

/// How much of a failure's reason the table shows, in characters.
const REASON: usize = 80;
/// Columns from the plugins on, without the reason.
const FIGURES: usize = 10;

/// One directory's plugins in one setting.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) conflist: String,
    #[serde(flatten)]
    pub(crate) cell: Cell,
    /// The limit of another pod whose traffic goes at the same time.
    #[serde(rename = "beside_bps", skip_serializing_if = "Option::is_none")]
    pub(crate) beside: Option<Rate>,
    pub(crate) plugins: String,
    #[serde(flatten)]
    pub(crate) figures: Option<Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<Failure>,
}

/// What was measured.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Figures {
    pub(crate) goodput_mbps: f64,
    /// Goodput over what the rate lets through at best.
    pub(crate) of_ideal: f64,
    /// The part of TCP's segments that had to be sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resent: Option<f64>,
    /// Round trips beside one bulk flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rr: Option<Summary>,
    /// Busy time of all processors for each Gbit of goodput.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_s_per_gbit: Option<f64>,
}

/// Why there are no figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Failure {
    /// Whether it is the `bandwidth` plugin that would not shape this interface.
    pub(crate) refused: bool,
    pub(crate) reason: String,
}

/// All that a run found out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// The name of the plugins that the others are compared with.
    pub(crate) baseline: String,
    /// How TCP found its rate.
    pub(crate) congestion: String,
    /// How long each figure was measured.
    pub(crate) seconds: u64,
    /// How often; the figures are the middle ones.
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
}

impl Failure {
    pub(crate) fn of(err: &Error) -> Self {
        let reason = format!("{err:#}").split_whitespace().collect::<Vec<_>>().join(" ");
        Failure { refused: reason.starts_with("ADD bandwidth:"), reason }
    }

    /// As much as a table holds, without what every reason has.
    fn short(&self) -> String {
        let short = self.reason.strip_prefix("ADD ").unwrap_or(&self.reason).replacen("code 999: ", "", 1);
        short.chars().take(REASON).collect()
    }

    /// What stands in place of figures.
    pub(crate) fn word(&self) -> &'static str {
        if self.refused { "refused" } else { "failed" }
    }
}

impl Report {
    /// The baseline's row of the same setting; `None` for the baseline's own.
    pub(crate) fn baseline_of(&self, row: &Row) -> Option<&Row> {
        let same = |other: &&Row| other.plugins == self.baseline && other.is_at(row);
        self.rows.iter().find(same).filter(|_| row.plugins != self.baseline)
    }

    /// A row a line.
    pub(crate) fn table(&self) -> Table {
        let over = format!("/ {}", self.baseline);
        let mut header: Vec<&str> = vec![
            "conflist",
            "rate",
            "direction",
            "protocol",
            "flows",
            "family",
            "plugins",
            "Mbit/s",
            "% ideal",
            "% resent",
        ];
        header.extend(["rr p50 ms", &over, "rr p99 ms", &over, "cpu s/Gbit", &over]);
        header.extend(self.rows.iter().any(|row| row.failure.is_some()).then_some("why"));
        let rows = self.rows.iter().map(|row| (row.place(), row.cells(self.baseline_of(row))));
        table(header, &[0, 1, 2, 3, 4, 5, 6, 16], rows)
    }
}

impl Row {
    /// The cell as people call it.
    pub(crate) fn title(&self) -> String {
        [self.cell.to_string()].into_iter().chain(self.neighbours()).collect::<Vec<_>>().join(", ")
    }

    /// What else goes through a shaper at the same time, if anything.
    pub(crate) fn neighbours(&self) -> Option<String> {
        let flows = (self.cell.flows > 1).then(|| format!("{} flows", self.cell.flows));
        self.beside.map(|beside| format!("beside {beside}")).or(flows)
    }

    fn is_at(&self, other: &Row) -> bool {
        (&self.conflist, self.cell, self.beside) == (&other.conflist, other.cell, other.beside)
    }

    fn place(&self) -> Vec<String> {
        let Cell { rate, direction, protocol, flows, family } = self.cell;
        let rate = self.beside.map_or_else(|| rate.to_string(), |beside| format!("{rate} beside {beside}"));
        let rest = [direction.to_string(), protocol.to_string(), flows.to_string(), family.to_string()];
        [self.conflist.clone(), rate].into_iter().chain(rest).collect()
    }

    fn cells(&self, baseline: Option<&Row>) -> Vec<String> {
        let mut cells = vec![self.plugins.clone()];
        let Some(figures) = self.figures else {
            cells.push(self.failure.as_ref().map_or("", Failure::word).to_owned());
            cells.resize(FIGURES, String::new());
            cells.extend(self.failure.iter().map(Failure::short));
            return cells;
        };
        cells.extend([format!("{:.2}", figures.goodput_mbps), format!("{:.1}", figures.of_ideal * 100.0)]);
        cells.push(figures.resent.map_or(String::new(), |part| format!("{:.1}", part * 100.0)));
        let others = baseline.and_then(|row| row.figures);
        for of in [Figures::rr_p50_ms, Figures::rr_p99_ms, Figures::cpu] {
            let (own, other) = (of(&figures), others.and_then(|others| of(&others)));
            cells.push(own.map_or(String::new(), |own| format!("{own:.2}")));
            cells.push(own.zip(other).map_or(String::new(), |(own, other)| shown(own / other)));
        }
        cells
    }
}

impl Figures {
    pub(crate) fn rr_p50_ms(&self) -> Option<f64> {
        self.rr.map(|rr| rr.p50_ms)
    }

    pub(crate) fn rr_p99_ms(&self) -> Option<f64> {
        self.rr.map(|rr| rr.p99_ms)
    }

    pub(crate) fn cpu(&self) -> Option<f64> {
        self.cpu_s_per_gbit
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::cell::{Direction, Family};
    use super::*;
    use crate::traffic::Protocol;
    use std::time::Duration;

    /// A row of 10M ingress TCP whose round trips all take this long.
    pub(crate) fn row(plugins: &str, of_ideal: f64, rr_ms: u64, cpu: f64) -> Row {
        let (direction, protocol) = (Direction::Ingress, Protocol::Tcp);
        let figures = Figures {
            goodput_mbps: 9.5,
            of_ideal,
            resent: Some(0.02),
            rr: Summary::of(&[Duration::from_millis(rr_ms)]),
            cpu_s_per_gbit: Some(cpu),
        };
        Row {
            conflist: "bridge".to_owned(),
            cell: Cell { rate: Rate::M10, direction, protocol, flows: 1, family: Family::V4 },
            beside: None,
            plugins: plugins.to_owned(),
            figures: Some(figures),
            failure: None,
        }
    }

    pub(crate) fn failed(plugins: &str, reason: &'static str) -> Row {
        Row { figures: None, failure: Some(Failure::of(&Error::msg(reason))), ..row(plugins, 0.0, 0, 0.0) }
    }

    pub(crate) fn report(rows: Vec<Row>) -> Report {
        Report {
            machine: Machine::default(),
            baseline: "ref".to_owned(),
            congestion: "cubic".into(),
            seconds: 3,
            rounds: 1,
            rows,
        }
    }

    fn lines(rows: Vec<Row>) -> Vec<String> {
        let words = |line: &str| line.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        report(rows).table().to_string().lines().map(words).filter(|line| line.contains("re")).skip(1).collect()
    }

    #[test]
    fn a_row_is_compared_with_the_baseline_s() {
        let mine = row("more", 0.99, 2, 1.5);
        assert_eq!(
            lines(vec![row("ref", 0.5, 40, 3.0), mine]),
            [
                "bridge 10M ingress tcp 1 4 ref 9.50 50.0 2.0 40.00 40.00 3.00",
                "more 9.50 99.0 2.0 2.00 0.050 2.00 0.050 1.50 0.50"
            ]
        );
    }

    #[test]
    fn refusal_is_told_from_failure_with_its_reason() {
        let refused = failed("ref", "ADD bandwidth: code 999: no veth");
        let broken = failed("more", "ADD bridge: code 999: no\n  such thing");
        assert_eq!(
            lines(vec![refused, broken]),
            ["bridge 10M ingress tcp 1 4 ref refused bandwidth: no veth", "more failed bridge: no such thing"]
        );
    }

    #[test]
    fn a_pod_beside_another_has_a_row_of_its_own() {
        let beside = Row { beside: Some(Rate::M50), ..row("ref", 1.0, 1, 1.0) };
        assert_eq!(beside.title(), "10M ingress tcp IPv4, beside 50M");
        assert!(!beside.is_at(&row("ref", 1.0, 1, 1.0)));
    }

    #[test]
    fn json_has_settings_and_figures_side_by_side() {
        let value = serde_json::to_value(row("ref", 0.5, 40, 3.0)).unwrap();
        assert_eq!(value["rate_bps"], 10_000_000);
        assert_eq!((&value["family"], &value["direction"]), (&"4".into(), &"ingress".into()));
        assert_eq!((&value["of_ideal"], &value["rr"]["p50_ms"]), (&0.5.into(), &40.0.into()));
    }
}
