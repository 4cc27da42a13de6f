//! Figures of all plugin directories, compared with each other, as a table and as JSON.

use crate::floor::FLOOR;
use crate::options::Common;
use crate::stats::Spread;
use anyhow::{Context, Error, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Maximum number of characters of a failure's reason in the table.
const REASON: usize = 80;

/// All rows of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// Other conditions of the run.
    #[serde(flatten, serialize_with = "named")]
    pub(crate) conditions: Vec<(&'static str, String)>,
    /// Names of the plugin directories to compare with. For each figure, the baseline with the
    /// highest median counts.
    pub(crate) baselines: Vec<String>,
    /// True if a ratio is the median of the ratios of all rounds. Otherwise it is the ratio of two
    /// medians. Other work on the machine affects both rows of a round, so it hardly changes the
    /// ratio of the round.
    #[serde(skip)]
    pub(crate) by_round: bool,
    pub(crate) rows: Vec<Row>,
}

/// Figures of one plugin directory in one setting.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// Names and values of the setting, which are the first columns of the table.
    #[serde(flatten, serialize_with = "named")]
    pub(crate) setting: Vec<(&'static str, String)>,
    pub(crate) plugins: String,
    /// Samples by name of the figure; empty after a failure.
    #[serde(flatten, serialize_with = "spreads")]
    samples: BTreeMap<&'static str, Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<Failure>,
}

/// Figures of one round by name.
pub(crate) type Figures = Vec<(&'static str, f64)>;

/// Reason for a row without figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Failure {
    /// True if the plugin `bandwidth` refused to shape this interface.
    pub(crate) refused: bool,
    pub(crate) reason: String,
}

/// A column of the table: title, figure, and content of its cells.
pub(crate) type Column<'a> = (&'a str, &'static str, Cell);

/// Content of a cell.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell {
    /// A statistic with this number of decimals.
    Value(fn(&Spread) -> f64, usize),
    /// Ratio to another row.
    Ratio(Beside),
}

/// Row that another row is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// The best baseline in the same setting.
    Baseline,
    /// The floor in the same setting, or else the first floor.
    Floor,
    /// First row of the same plugins.
    First,
}

/// Machine on which the figures were measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Machine {
    /// The kernel's release.
    kernel: String,
    cpus: usize,
    /// Average number of runnable tasks over the minute before the run (`/proc/loadavg`). More than
    /// a fraction of one CPU is other work, which slows the rows down by different factors.
    load: f64,
}

impl Machine {
    /// Describes this machine. Prints a warning if other work on it would affect the figures.
    pub(crate) fn observe() -> Result<Self> {
        let text = crate::read::read("/proc/loadavg")?;
        let load = text.split(' ').next().unwrap_or_default().parse();
        let load = load.with_context(|| format!("/proc/loadavg: \"{}\"", text.trim()))?;
        if load > 0.5 {
            eprintln!(
                "warning: other work runs on this machine (load {load}): the figures are high, and ratios are off as well"
            );
        }
        let kernel = crate::read::read("/proc/sys/kernel/osrelease")?
            .trim()
            .to_owned();
        Ok(Self {
            kernel,
            cpus: std::thread::available_parallelism()?.get(),
            load,
        })
    }
}

impl Failure {
    pub(crate) fn of(err: &Error) -> Self {
        let reason = format!("{err:#}")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        Failure {
            refused: reason.starts_with("ADD bandwidth:"),
            reason,
        }
    }

    /// Returns the reason without its common prefix, shortened for a table.
    fn short(&self) -> String {
        let word = if self.refused { "refused" } else { "failed" };
        let short = self
            .reason
            .strip_prefix("ADD ")
            .unwrap_or(&self.reason)
            .replacen("code 999: ", "", 1);
        format!("{word}: {}", short.chars().take(REASON).collect::<String>())
    }
}

impl Row {
    pub(crate) fn new(setting: Vec<(&'static str, String)>, plugins: &str) -> Self {
        Row {
            setting,
            plugins: plugins.to_owned(),
            samples: BTreeMap::new(),
            failure: None,
        }
    }

    /// Adds the figures of a round. A failure in any round replaces all figures.
    pub(crate) fn add(&mut self, round: Result<Figures, Failure>) {
        match round {
            Err(failure) => {
                self.failure = Some(failure);
                self.samples.clear();
            }
            Ok(_) if self.failure.is_some() => {}
            Ok(figures) => {
                for (name, value) in figures {
                    self.samples.entry(name).or_default().push(value);
                }
            }
        }
    }

    pub(crate) fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::of(self.samples.get(figure)?)
    }

    /// Returns the median of a figure.
    pub(crate) fn p50(&self, figure: &str) -> Option<f64> {
        self.spread(figure).map(|spread| spread.p50)
    }

    /// Returns the value of the setting with this name.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.setting
            .iter()
            .find_map(|(other, value)| (*other == name).then_some(value.as_str()))
    }

    /// Returns the plugins and the setting in one line.
    pub(crate) fn title(&self) -> String {
        self.setting
            .iter()
            .fold(self.plugins.clone(), |title, (name, value)| {
                format!("{title}, {name} {value}")
            })
    }
}

impl Report {
    /// Writes the JSON file if requested, and prints the table.
    #[expect(clippy::print_stdout, reason = "the table is what the bench is for")]
    pub(crate) fn publish(&self, columns: &[Column<'_>], to: &Common) -> Result<()> {
        if let Some(file) = &to.json {
            let text = serde_json::to_string_pretty(self)?;
            std::fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
        }
        println!("{}", self.table(columns));
        Ok(())
    }

    /// Returns the title of a column with ratios to the baselines.
    pub(crate) fn over_baseline(&self) -> String {
        format!(
            "/ {}",
            if let [one] = self.baselines.as_slice() {
                one
            } else {
                "best"
            }
        )
    }

    /// Returns the row that `row` is compared with for a figure; `None` if there is no such row.
    pub(crate) fn beside(&self, row: &Row, figure: &str, beside: Beside) -> Option<&Row> {
        let in_setting = || {
            self.rows
                .iter()
                .filter(|other| other.setting == row.setting)
        };
        match beside {
            Beside::Baseline => in_setting()
                .filter(|other| self.baselines.contains(&other.plugins))
                .max_by(|one, other| {
                    one.p50(figure)
                        .unwrap_or(0.0)
                        .total_cmp(&other.p50(figure).unwrap_or(0.0))
                }),
            Beside::Floor => in_setting()
                .chain(&self.rows)
                .find(|other| other.plugins == FLOOR),
            Beside::First => {
                let first = self.rows.iter().find(|other| other.plugins == row.plugins);
                first.filter(|first| first.setting != row.setting)
            }
        }
    }

    /// Returns the ratio of a figure to the same figure of another row.
    pub(crate) fn ratio(&self, row: &Row, figure: &str, beside: Beside) -> Option<f64> {
        let other = self.beside(row, figure, beside)?.spread(figure)?;
        let own = row.spread(figure)?;
        if !self.by_round {
            return Some(own.p50 / other.p50);
        }
        let ratios = own
            .samples
            .iter()
            .zip(&other.samples)
            .map(|(own, other)| own / other);
        Spread::of(&ratios.collect::<Vec<_>>()).map(|ratios| ratios.p50)
    }

    /// Formats a line for each row. A value of the setting that repeats the line above is left
    /// blank.
    pub(crate) fn table(&self, columns: &[Column<'_>]) -> Table {
        let names = self
            .rows
            .first()
            .map_or(&[][..], |row| &row.setting)
            .iter()
            .map(|(name, _)| *name);
        let mut header: Vec<&str> = names.chain(["plugins"]).collect();
        let numbers = header.len()..header.len() + columns.len();
        header.extend(columns.iter().map(|(title, ..)| title));
        header.extend(
            self.rows
                .iter()
                .any(|row| row.failure.is_some())
                .then_some("why"),
        );
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_BORDERS_ONLY)
            .set_header(header);
        let mut above: &[_] = &[];
        for row in &self.rows {
            let repeated = row
                .setting
                .iter()
                .zip(above)
                .take_while(|(here, above)| here == above)
                .count();
            let setting = row.setting.iter().enumerate();
            let mut cells: Vec<String> = setting
                .map(|(at, (_, value))| {
                    if at < repeated {
                        String::new()
                    } else {
                        value.clone()
                    }
                })
                .collect();
            cells.push(row.plugins.clone());
            cells.extend(
                columns
                    .iter()
                    .map(|column| self.cell(row, column).unwrap_or_default()),
            );
            cells.extend(row.failure.iter().map(Failure::short));
            table.add_row(cells);
            above = &row.setting;
        }
        for (_, column) in table
            .column_iter_mut()
            .enumerate()
            .filter(|(at, _)| numbers.contains(at))
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    fn cell(&self, row: &Row, (_, figure, cell): &Column<'_>) -> Option<String> {
        match *cell {
            Cell::Value(of, decimals) => Some(format!("{:.decimals$}", of(&row.spread(figure)?))),
            Cell::Ratio(beside) => {
                let ratio = self.ratio(row, figure, beside)?;
                // At least two significant digits.
                let decimals = if ratio < 0.1 { 3 } else { 2 };
                Some(format!("{ratio:.decimals$}"))
            }
        }
    }
}

/// Serializes pairs as the fields of an object.
fn named<S: Serializer>(pairs: &[(&'static str, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

fn spreads<S: Serializer>(
    samples: &BTreeMap<&'static str, Vec<f64>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(
        samples
            .iter()
            .map(|(name, samples)| (name, Spread::of(samples))),
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a row with the figure `rate`, which has the samples `rates`.
    fn row(plugins: &str, ports: u16, rates: &[f64]) -> Row {
        let mut row = Row::new(vec![("ports", ports.to_string())], plugins);
        for rate in rates {
            row.add(Ok(vec![("rate", *rate)]));
        }
        row
    }

    pub(crate) fn report(baselines: &[&str], rows: Vec<Row>) -> Report {
        let baselines = baselines.iter().map(|name| (*name).to_owned()).collect();
        Report {
            machine: Machine::default(),
            conditions: Vec::new(),
            baselines,
            by_round: true,
            rows,
        }
    }

    fn failure(reason: &'static str) -> Failure {
        Failure::of(&Error::msg(reason))
    }

    /// Returns the lines of a table with one blank between words.
    fn lines(report: &Report, columns: &[Column<'_>]) -> Vec<String> {
        let words = |line: &str| {
            line.split_whitespace()
                .filter(|word| *word != "│")
                .collect::<Vec<_>>()
                .join(" ")
        };
        report
            .table(columns)
            .to_string()
            .lines()
            .map(words)
            .filter(|line| line.contains(char::is_alphanumeric))
            .collect()
    }

    #[test]
    fn a_row_is_compared_with_baseline_first_setting_and_floor() {
        let rows = vec![
            row(FLOOR, 0, &[200.0, 400.0, 200.0]),
            row("slow", 1, &[50.0, 50.0, 50.0]),
            row("fast", 1, &[80.0, 100.0, 120.0]),
            row("own", 1, &[100.0, 200.0, 100.0]),
            row("own", 1000, &[90.0, 180.0, 95.0]),
        ];
        let mut report = report(&["slow", "fast"], rows);
        let ratios = |report: &Report, at: usize| {
            [Beside::Baseline, Beside::First, Beside::Floor]
                .map(|to| report.ratio(&report.rows[at], "rate", to))
        };
        assert_eq!(ratios(&report, 3), [Some(1.25), None, Some(0.5)]);
        assert_eq!(ratios(&report, 4), [None, Some(0.9), Some(0.45)]);
        report.by_round = false;
        assert_eq!(ratios(&report, 4), [None, Some(0.95), Some(0.475)]);
    }

    #[test]
    fn a_setting_that_repeats_is_blank_and_a_failure_has_its_reason() {
        let mut refused = row("own", 1, &[]);
        refused.add(Err(failure("ADD bandwidth: code 999: no\n  veth")));
        let mut failed = row("own", 2, &[7.0]);
        failed.add(Err(failure("ADD bridge: no")));
        failed.add(Ok(vec![("rate", 9.0)]));
        let report = report(&["ref"], vec![row("ref", 1, &[8.0]), refused, failed]);
        let columns = [
            ("rate/s", "rate", Cell::Value(|spread| spread.p50, 1)),
            ("/", "rate", Cell::Ratio(Beside::Baseline)),
        ];
        assert_eq!(
            lines(&report, &columns),
            [
                "ports plugins rate/s / why",
                "1 ref 8.0 1.00",
                "own refused: bandwidth: no veth",
                "2 own failed: bridge: no"
            ]
        );
    }

    #[test]
    fn json_has_setting_statistics_and_samples_side_by_side() {
        let value =
            serde_json::to_value(report(&["ref"], vec![row("ref", 1, &[10.0, 30.0, 20.0])]))
                .unwrap();
        let row = &value["rows"][0];
        assert_eq!(
            (&row["ports"], &row["plugins"], &row["rate"]["p50"]),
            (&"1".into(), &"ref".into(), &20.0.into())
        );
        assert_eq!(
            row["rate"]["samples"],
            serde_json::json!([10.0, 30.0, 20.0])
        );
    }
}
