//! What `bandwidth` plugins do to traffic, side by side.
//!
//! ```text
//!  cli ─► run: each conflist and cell (rate, direction, protocol, flows, family), contenders in turns
//!           └─► measure ─► attach: node, shaped pods, the other end of their traffic
//!                      ├─► traffic: bulk flows, what arrived ─► goodput
//!                      ├─► cpu, segments: busy time of the processors and TCP's segments meanwhile
//!                      └─► rr: round trips beside a bulk flow
//!         rows ─► rounds: the middle of several ─► report (table, JSON), budget
//! ```

mod attach;
mod budget;
mod cell;
pub(crate) mod cli;
mod measure;
mod report;
mod rounds;
mod segments;

use crate::report::{Machine, publish};
use crate::run::progress;
use anyhow::Result;
use cell::{Cell, Direction, Family};
use cli::Args;
use measure::Place;
use report::{Report, Row};

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
    let report = Report {
        machine: Machine::observe()?,
        baseline: args.baseline().to_owned(),
        congestion: congestion(args)?,
        seconds: args.seconds,
        rounds: args.rounds,
        rows: rows(args)?,
    };
    publish(&report, &report.table(), &args.common)?;
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
    let settings = settings(args);
    let bar = progress(args.conflist.len() * settings.len() * args.common.plugins.len() * args.rounds)?;
    let mut rows = Vec::new();
    for network in &args.conflist {
        let label = network.label();
        let contenders = args.common.contenders(network)?;
        for (number, setting) in settings.iter().enumerate() {
            let mut found = vec![Vec::new(); contenders.len()];
            for round in 0..args.rounds {
                let mut turns: Vec<_> = contenders.iter().zip(&mut found).collect();
                if (number + round) % 2 == 1 {
                    turns.reverse();
                }
                for (contender, found) in turns {
                    bar.set_message(format!("{label}, {}, {}", setting.title(), contender.name));
                    found.push(setting.measure(&Place { label: &label, contender, args }));
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
