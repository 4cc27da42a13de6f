//! The figures as a table and as JSON.

use crate::site::Held;
use crate::stats::Summary;
use crate::strace::Trace;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// One contender's calls of one verb in one setting.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) conflist: String,
    #[serde(flatten)]
    pub(crate) held: Held,
    pub(crate) concurrency: usize,
    /// `ADD` or `DEL`.
    pub(crate) verb: &'static str,
    pub(crate) plugins: String,
    #[serde(flatten)]
    pub(crate) summary: Summary,
    /// This p50 divided by the baseline's.
    pub(crate) of_baseline: Option<f64>,
    /// This p50 divided by the floor's.
    pub(crate) of_floor: Option<f64>,
    /// Calls through the whole list per second of the bursts they came in.
    pub(crate) calls_per_s: f64,
    /// What strace counted, summed over the pods attached at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<Trace>,
}

/// All that a run found out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The kernel's release.
    pub(crate) kernel: String,
    pub(crate) cpus: usize,
    /// Runnable tasks on average over the minute before the run (`/proc/loadavg`): more than a part of one CPU is other
    /// work, which slows the rows down and not all by the same factor.
    pub(crate) load: f64,
    /// The name of the plugins that the others are compared with.
    pub(crate) baseline: String,
    pub(crate) rows: Vec<Row>,
}

impl Report {
    /// A row a line, times in milliseconds; cells that repeat the line above are left blank.
    pub(crate) fn table(&self) -> Table {
        let traced = self.rows.iter().any(|row| row.trace.is_some());
        let mut header: Vec<String> =
            ["conflist", "leases", "ports", "at once", "verb", "plugins", "p50 ms", "p95", "p99", "min", "mean"]
                .map(str::to_owned)
                .into();
        header.extend([format!("/ {}", self.baseline), "/ floor".to_owned(), "calls/s".to_owned()]);
        if traced {
            header.extend(["syscalls", "forks", "threads", "execs"].map(str::to_owned));
        }
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY).set_header(header);
        let mut above = Vec::new();
        for row in &self.rows {
            let place = row.place();
            let repeated = place.iter().zip(&above).take_while(|(here, above)| here == above).count();
            let blank = (0..repeated).map(|_| String::new());
            table.add_row(blank.chain(place.iter().skip(repeated).cloned()).chain(row.figures()));
            above = place;
        }
        for column in table.column_iter_mut().enumerate().filter(|(at, _)| ![0, 4, 5].contains(at)).map(|(_, c)| c) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

impl Row {
    /// Where the row stands: network, leases, ports, concurrency, verb.
    fn place(&self) -> Vec<String> {
        let [leases, ports] = [self.held.leases, self.held.ports.into()].map(|count: usize| count.to_string());
        vec![self.conflist.clone(), leases, ports, self.concurrency.to_string(), self.verb.to_owned()]
    }

    fn figures(&self) -> Vec<String> {
        let Summary { min_ms, mean_ms, p50_ms, p95_ms, p99_ms, .. } = self.summary;
        let mut cells = vec![self.plugins.clone()];
        cells.extend([p50_ms, p95_ms, p99_ms, min_ms, mean_ms].map(|ms| format!("{ms:.2}")));
        cells.extend([self.of_baseline, self.of_floor].map(|ratio| ratio.map_or(String::new(), shown)));
        cells.push(format!("{:.1}", self.calls_per_s));
        if let Some(Trace { syscalls, forks, threads, execs }) = self.trace {
            cells.extend([syscalls, forks, threads, execs].map(|count| count.to_string()));
        }
        cells
    }
}

/// A ratio with at least two digits that say something.
pub(crate) fn shown(ratio: f64) -> String {
    let decimals = if ratio < 0.1 { 3 } else { 2 };
    format!("{ratio:.decimals$}")
}
