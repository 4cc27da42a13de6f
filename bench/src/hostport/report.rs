//! The figures as a table and as JSON.

use super::cli::Position;
use super::figures::{Row, Spread};
use crate::report::{Machine, shown, table};
use crate::run::FLOOR;
use comfy_table::Table;
use serde::Serialize;

/// All that a run found out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// Its version, where it is installed.
    pub(crate) iptables: Option<String>,
    /// The names of the plugins that the others are compared with.
    pub(crate) baselines: Vec<String>,
    /// When the measured port was added.
    pub(crate) position: Position,
    /// How often each figure was measured.
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
}

impl Report {
    /// A row a line.
    pub(crate) fn table(&self) -> Table {
        let over = format!("/ {}", if let [one] = self.baselines.as_slice() { one } else { "best" });
        let mut header = vec!["ports", "plugins"];
        header.extend(["conn/s", "± %", &over, "/ few", "/ floor", "own cpu µs"]);
        header.extend(["Gbit/s", "± %", &over, "/ few", "/ floor", "cpu s/Gbit"]);
        header.extend(["udp rr/s", "± %", &over]);
        table(header, &[1], self.rows.iter().map(|row| (Vec::new(), row.cells())))
    }
}

impl Row {
    /// The ports as people say it.
    pub(crate) fn place(&self) -> String {
        match self.ports {
            1 => "1 port".to_owned(),
            _ if self.plugins == FLOOR => "no port".to_owned(),
            ports => format!("{ports} ports"),
        }
    }

    fn cells(&self) -> Vec<String> {
        let figures = &self.figures;
        let mut cells = vec![self.ports.to_string(), self.plugins.clone()];
        cells.extend(figures.connections_per_s.cells(0));
        cells.extend(figures.connections_per_s.ratios());
        cells.push(format!("{:.1}", figures.cpu_us_per_connection.median));
        cells.extend(figures.gbit_per_s.cells(2));
        cells.extend(figures.gbit_per_s.ratios());
        cells.push(format!("{:.3}", figures.cpu_s_per_gbit.median));
        cells.extend(figures.udp_trips_per_s.cells(0));
        cells.push(ratio(figures.udp_trips_per_s.of_baseline));
        cells
    }
}

impl Spread {
    fn cells(&self, decimals: usize) -> [String; 2] {
        [format!("{:.decimals$}", self.median), format!("{:.1}", self.off() * 100.0)]
    }

    fn ratios(&self) -> [String; 3] {
        [self.of_baseline, self.of_fewest, self.of_floor].map(ratio)
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), shown)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::figures::tests::sampled;
    use super::super::figures::{Sampled, rows};
    use super::*;

    pub(crate) fn report(all: &[Sampled]) -> Report {
        Report {
            machine: Machine::default(),
            iptables: None,
            baselines: vec!["ref".to_owned()],
            position: Position::Middle,
            rounds: 1,
            rows: rows(all, &["ref"]),
        }
    }

    #[test]
    fn a_row_is_compared_with_the_baseline_its_fewest_ports_and_the_floor() {
        let all = [(FLOOR, 0, 2000.0), ("ref", 1, 800.0), ("mine", 1, 1000.0), ("mine", 1000, 900.0)];
        let all = all.map(|(plugins, ports, connections)| sampled(plugins, ports, &[connections]));
        let words = |line: &str| line.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = report(&all).table().to_string().lines().map(words).collect();
        let mine = |line: &&String| line.contains("mine");
        assert_eq!(
            lines.iter().filter(mine).collect::<Vec<_>>(),
            [
                "1 mine 1000 0.0 1.25 0.50 1000.0 1.00 0.0 1.25 0.50 0.100 500 0.0 1.00",
                "1000 mine 900 0.0 0.90 0.45 1111.1 0.90 0.0 0.90 0.45 0.100 500 0.0"
            ]
        );
    }

    #[test]
    fn json_has_each_figure_with_its_rounds() {
        let value = serde_json::to_value(report(&[sampled("own", 1, &[10.0, 20.0, 30.0])])).unwrap();
        let connections = &value["rows"][0]["connections_per_s"];
        assert_eq!((&connections["median"], &connections["max"]), (&20.0.into(), &30.0.into()));
        assert_eq!(connections["rounds"].as_array().map(Vec::len), Some(3));
        assert_eq!(value["position"], "middle");
    }
}
