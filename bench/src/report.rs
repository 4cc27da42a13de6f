//! The figures as a table and as JSON.

use crate::cli::Common;
use crate::site::Held;
use crate::stats::Summary;
use crate::strace::Trace;
use anyhow::{Context, Result};
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
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// The name of the plugins that the others are compared with.
    pub(crate) baseline: String,
    pub(crate) rows: Vec<Row>,
}

/// Origin of the figures.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Machine {
    /// The kernel's release.
    kernel: String,
    cpus: usize,
    /// Runnable tasks on average over the minute before the run (`/proc/loadavg`): more than a part of one CPU is other
    /// work, which slows the rows down and not all by the same factor.
    load: f64,
}

impl Machine {
    /// This one, with a warning where other work shows in the figures.
    pub(crate) fn observe() -> Result<Self> {
        let text = crate::read("/proc/loadavg")?;
        let load = text.split(' ').next().unwrap_or_default().parse();
        let load = load.with_context(|| format!("/proc/loadavg: \"{}\"", text.trim()))?;
        if load > 0.5 {
            eprintln!(
                "warning: other work runs on this machine (load {load}): the figures are high, and ratios are off as well"
            );
        }
        let kernel = crate::read("/proc/sys/kernel/osrelease")?.trim().to_owned();
        Ok(Self { kernel, cpus: std::thread::available_parallelism()?.get(), load })
    }
}

/// Writes a report to the files that are asked for, and prints its table.
#[expect(clippy::print_stdout, reason = "the table is what the bench is for")]
pub(crate) fn publish(report: &impl Serialize, table: &Table, to: &Common) -> Result<()> {
    if let Some(file) = &to.json {
        let text = serde_json::to_string_pretty(report)?;
        std::fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    }
    println!("{table}");
    Ok(())
}

/// A line for each row, which is a place and figures; cells of a place that repeat the line above are left blank. All
/// columns are numbers but those of `text`.
pub(crate) fn table<S: ToString>(
    header: impl IntoIterator<Item = S>,
    text: &[usize],
    rows: impl Iterator<Item = (Vec<String>, Vec<String>)>,
) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_header(header.into_iter().map(|name| name.to_string()));
    let mut above = Vec::new();
    for (place, figures) in rows {
        let repeated = place.iter().zip(&above).take_while(|(here, above)| here == above).count();
        let blank = (0..repeated).map(|_| String::new());
        table.add_row(blank.chain(place.iter().skip(repeated).cloned()).chain(figures));
        above = place;
    }
    for (_, column) in table.column_iter_mut().enumerate().filter(|(at, _)| !text.contains(at)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

impl Report {
    /// Times are in milliseconds.
    pub(crate) fn table(&self) -> Table {
        let mut header: Vec<String> =
            ["conflist", "leases", "ports", "at once", "verb", "plugins", "p50 ms", "p95", "p99", "min", "mean"]
                .map(str::to_owned)
                .into();
        header.extend([format!("/ {}", self.baseline), "/ floor".to_owned(), "calls/s".to_owned()]);
        if self.rows.iter().any(|row| row.trace.is_some()) {
            header.extend(["syscalls", "forks", "threads", "execs"].map(str::to_owned));
        }
        table(header, &[0, 4, 5], self.rows.iter().map(|row| (row.place(), row.figures())))
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
