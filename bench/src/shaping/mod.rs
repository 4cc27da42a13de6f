//! What `bandwidth` plugins do to traffic, side by side.
//!
//! ```text
//!  cli ─► run: each conflist and cell (rate, direction, protocol, flows, family), contenders in turns
//!           └─► measure ─► attach: node, shaped pods, the other end of their traffic
//!                      ├─► traffic: bulk flows, what arrived ─► goodput
//!                      ├─► cpu, segments: busy time of the processors and TCP's segments meanwhile
//!                      └─► rr: round trips beside a bulk flow
//!         rows ─► rounds: the middle of several ─► report (table, JSON), svg, budget
//! ```

mod attach;
mod budget;
mod cell;
pub(crate) mod cli;
mod measure;
mod report;
mod rounds;
mod segments;
mod svg;

use crate::conflist::Conflist;
use crate::run::progress;
use anyhow::{Context, Result};
use cell::{Cell, Direction, Family};
use cli::Args;
use measure::Place;
use report::{Report, Row};
use std::path::PathBuf;

/// One setting of a conflist.
#[derive(Clone, Copy)]
enum Setting {
    /// One pod; with or without round trips.
    Alone(Cell, bool),
    /// Two pods of different rates at the same time.
    Pair(Family, Direction),
}

/// Measures all settings of the command line and reports them.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    let load = crate::load()?;
    let report = Report {
        kernel: crate::read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        cpus: std::thread::available_parallelism()?.get(),
        load,
        baseline: args.baseline().to_owned(),
        congestion: congestion(args)?,
        seconds: args.seconds,
        rounds: args.rounds,
        rows: rows(args)?,
    };
    if let Some(file) = &args.json {
        crate::write(file, &serde_json::to_string_pretty(&report)?)?;
    }
    if let Some(file) = &args.svg {
        crate::write(file, &svg::draw(&report))?;
    }
    crate::print(&report.table());
    budget::judge(&report, args.enforce)
}

/// How TCP finds its rate.
fn congestion(args: &Args) -> Result<String> {
    match &args.congestion {
        Some(given) => Ok(given.clone()),
        None => Ok(crate::read("/proc/sys/net/ipv4/tcp_congestion_control")?.trim().to_owned()),
    }
}

fn rows(args: &Args) -> Result<Vec<Row>> {
    let dirs = args.plugins.iter().map(|plugins| {
        plugins.path.canonicalize().with_context(|| format!("plugins {}: {}", plugins.name, plugins.path.display()))
    });
    let dirs: Vec<PathBuf> = dirs.collect::<Result<_>>()?;
    let settings = settings(args);
    let bar = progress(args.conflist.len() * settings.len() * dirs.len() * args.rounds)?;
    let mut rows = Vec::new();
    for network in &args.conflist {
        let label = network.label();
        let lists = args.plugins.iter().map(|plugins| Conflist::read(network.file(&plugins.name)));
        let lists: Vec<_> = lists.collect::<Result<_>>()?;
        for (number, setting) in settings.iter().enumerate() {
            let mut found = vec![Vec::new(); args.plugins.len()];
            for round in 0..args.rounds {
                let contenders = args.plugins.iter().zip(&dirs).zip(&lists).zip(&mut found);
                let mut contenders: Vec<_> = contenders.collect();
                if (number + round) % 2 == 1 {
                    contenders.reverse();
                }
                for (((plugins, dir), list), found) in contenders {
                    bar.set_message(format!("{label}, {}, {}", setting.title(), plugins.name));
                    let (seconds, congestion) = (args.seconds, args.congestion.as_deref());
                    let place =
                        Place { label: &label, plugins: &plugins.name, conflist: list, dir, seconds, congestion };
                    found.push(setting.measure(&place));
                    bar.inc(1);
                }
            }
            let mut found: Vec<_> = found.iter().flat_map(|rounds| rounds::middle(rounds)).collect();
            found.sort_by_key(|row| row.cell.rate);
            rows.extend(found);
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn settings(args: &Args) -> Vec<Setting> {
    let cells = args.cells();
    let few = cells.iter().map(|cell| cell.flows).min();
    // More flows in the cell change nothing about round trips beside one.
    let alone = cells.into_iter().map(|cell| Setting::Alone(cell, Some(cell.flows) == few));
    alone.chain(args.pairs().into_iter().map(|(family, way)| Setting::Pair(family, way))).collect()
}

impl Setting {
    fn title(&self) -> String {
        match self {
            Setting::Alone(cell, _) => format!("{cell}, {} flows", cell.flows),
            Setting::Pair(family, direction) => format!("two pods, {direction} IPv{family}"),
        }
    }

    fn measure(self, place: &Place<'_>) -> Vec<Row> {
        match self {
            Setting::Alone(cell, with_round_trips) => vec![measure::alone(place, cell, with_round_trips)],
            Setting::Pair(family, direction) => measure::pair(place, family, direction),
        }
    }
}
