//! Attachment latency of CNI plugins, side by side, beside the kernel's own floor.
//!
//! ```text
//!  cli ─► run: each setting (conflist, leases and ports held, concurrency), contenders in turns
//!           └─► site: node (namespaces), pods, a burst of ADDs, a burst of DELs, verify
//!                 ├─► chain ─► call: the plugins of a directory as libcni calls them
//!                 └─► floor: the kernel alone, by netlink
//!         rows ─► report (table, JSON), svg
//! ```
//!
//! `braid-bench shaping` measures what `bandwidth` plugins do to traffic, see [`shaping`]; `braid-bench hostport` what the
//! ports of `portmap` plugins do to it, see [`hostport`].

mod budget;
mod call;
mod chain;
mod cli;
mod conflist;
mod floor;
mod hostport;
mod lease;
mod netlink;
mod node;
mod outside;
mod ports;
mod programs;
mod report;
mod run;
mod shaping;
mod site;
mod stats;
mod strace;
mod svg;
mod traffic;
mod verify;

use anyhow::{Context, Result};
use clap::Parser as _;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let done = match &cli.other {
        Some(cli::Other::Shaping(args)) => shaping::run(args),
        Some(cli::Other::Hostport(args)) => hostport::run(args),
        None => bench(&cli),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(cli: &cli::Cli) -> Result<()> {
    cli.check()?;
    let load = load()?;
    let rows = run::run(cli)?;
    let baseline = cli.baseline.clone().or(cli.plugins.first().map(|first| first.name.clone()));
    let report = report::Report {
        kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        cpus: std::thread::available_parallelism()?.get(),
        load,
        baseline: baseline.unwrap_or_default(),
        rows,
    };
    if let Some(file) = &cli.json {
        write(file, &serde_json::to_string_pretty(&report)?)?;
    }
    if let Some(file) = &cli.svg {
        write(file, &svg::draw(&report))?;
    }
    print(&report.table());
    Ok(())
}

/// The load average of the last minute, with a warning where it shows in the figures.
fn load() -> Result<f64> {
    let text = read("/proc/loadavg")?;
    let parsed = text.split(' ').next().unwrap_or_default().parse();
    let load = parsed.with_context(|| format!("/proc/loadavg: \"{}\"", text.trim()))?;
    if load > 0.5 {
        eprintln!(
            "warning: other work runs on this machine (load {load}): the figures are high, and ratios are off as well"
        );
    }
    Ok(load)
}

fn read(file: &str) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("read {file}"))
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("write {}", file.display()))
}

#[expect(clippy::print_stdout, reason = "the table is what the bench is for")]
fn print(table: &comfy_table::Table) {
    println!("{table}");
}
