//! Effect of `bandwidth` plugins on traffic, side by side.
//!
//! ```text
//!  cli ─► run: each conflist and cell (rate, direction, protocol, flows, family), contenders in turns
//!           └─► measure ─► attached: node, shaped pods, the other end of their traffic
//!                      ├─► traffic: bulk flows, arrivals ─► goodput
//!                      ├─► cpu, segments: busy time of the processors and TCP's segments meanwhile
//!                      └─► rr: round trips beside a bulk flow
//!         rows ─► report (table, JSON), budget
//! ```

mod budget;
mod cell;
pub(crate) mod cli;
mod measure;
mod segments;

use crate::budget::judge;
use crate::report::{Beside, Cell as Shown, Column, Failure, Figures, Machine, Report, Row};
use crate::run::progress;
use crate::traffic::Protocol;
use anyhow::Result;
use cell::{Cell, Direction, Family, Rate};
use cli::Args;
use measure::Place;

const GOODPUT: &str = "goodput_mbps";
/// Goodput relative to the highest goodput that the rate allows.
const OF_IDEAL: &str = "of_ideal";
/// Share of TCP segments that were retransmitted.
const RESENT: &str = "resent";
/// Percentiles of the round trips beside one bulk flow.
const RR_P50: &str = "rr_p50_ms";
const RR_P99: &str = "rr_p99_ms";
/// Busy time of all processors per Gbit of goodput.
const CPU: &str = "cpu_s_per_gbit";

/// Rates of two pods that are measured at the same time.
const PAIR: [Rate; 2] = [Rate::M10, Rate::M50];

/// One setting of a conflist.
#[derive(Clone, Copy)]
enum Setting {
    /// One pod. If the flag is true, round trips are measured as well.
    Alone(Cell, bool),
    /// Two pods of different rates at the same time.
    Pair([Cell; 2]),
}

/// Measures all settings of the command line, and reports the figures.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    let congestion = congestion(args)?;
    let conditions = vec![
        ("congestion", congestion.clone()),
        ("seconds", args.seconds.to_string()),
        ("rounds", args.rounds.to_string()),
    ];
    let (machine, baselines) = (Machine::observe()?, args.common.baselines());
    let report = Report {
        machine,
        conditions,
        baselines,
        by_round: false,
        rows: rows(args)?,
    };
    let over = report.over_baseline();
    let ratio = Shown::Ratio(Beside::Baseline);
    let columns: [Column<'_>; 9] = [
        ("Mbit/s", GOODPUT, Shown::Value(|goodput| goodput.p50, 2)),
        (
            "% ideal",
            OF_IDEAL,
            Shown::Value(|part| part.p50 * 100.0, 1),
        ),
        ("% resent", RESENT, Shown::Value(|part| part.p50 * 100.0, 1)),
        ("rr p50 ms", RR_P50, Shown::Value(|ms| ms.p50, 2)),
        (&over, RR_P50, ratio),
        ("rr p99 ms", RR_P99, Shown::Value(|ms| ms.p50, 2)),
        (&over, RR_P99, ratio),
        ("cpu s/Gbit", CPU, Shown::Value(|seconds| seconds.p50, 2)),
        (&over, CPU, ratio),
    ];
    report.publish(&columns, &args.common)?;
    let about = format!(
        "goodput: distance from the ideal; others: ratios to {}; TCP by {congestion}",
        &report.baselines.join(", ")
    );
    judge(&about, &budget::of(&report), args.enforce)
}

/// Returns the name of TCP's congestion control: the requested one, or the node's default.
fn congestion(args: &Args) -> Result<String> {
    match &args.congestion {
        Some(given) => Ok(given.clone()),
        None => Ok(
            crate::read::read("/proc/sys/net/ipv4/tcp_congestion_control")?
                .trim()
                .to_owned(),
        ),
    }
}

fn rows(args: &Args) -> Result<Vec<Row>> {
    let settings = settings(args);
    let bar = progress(
        args.common.conflist.len() * settings.len() * args.common.plugins.len() * args.rounds,
    )?;
    let mut all = Vec::new();
    for network in &args.common.conflist {
        let label = network.label();
        let contenders = args.common.contenders(network)?;
        for (number, setting) in settings.iter().enumerate() {
            let mut found: Vec<Vec<Row>> = contenders
                .iter()
                .map(|one| setting.rows(&label, one.name))
                .collect();
            for round in 0..args.rounds {
                let mut turns: Vec<_> = contenders.iter().zip(&mut found).collect();
                if (number + round) % 2 == 1 {
                    turns.reverse();
                }
                for (contender, rows) in turns {
                    bar.set_message(rows.first().map(Row::title).unwrap_or_default());
                    add(rows, setting.measure(&Place { contender, args }));
                    bar.inc(1);
                }
            }
            // The contenders' rows of a pod are adjacent.
            let pods = found.first().map_or(0, Vec::len);
            all.extend((0..pods).flat_map(|pod| found.iter().map(move |rows| rows[pod].clone())));
        }
    }
    bar.finish_and_clear();
    Ok(all)
}

/// Adds the figures of a round to the rows of a plugin directory.
fn add(rows: &mut [Row], measured: Result<Vec<Figures>>) {
    match measured {
        Ok(figures) => rows
            .iter_mut()
            .zip(figures)
            .for_each(|(row, figures)| row.add(Ok(figures))),
        Err(err) => rows
            .iter_mut()
            .for_each(|row| row.add(Err(Failure::of(&err)))),
    }
}

fn settings(args: &Args) -> Vec<Setting> {
    let cells = args.cells();
    let few = cells.iter().map(|cell| cell.flows).min();
    // More flows in the cell do not affect round trips beside one flow.
    let alone = cells
        .into_iter()
        .map(|cell| Setting::Alone(cell, Some(cell.flows) == few));
    let pair = |(family, direction): (Family, Direction)| {
        Setting::Pair(PAIR.map(|rate| Cell {
            rate,
            direction,
            protocol: Protocol::Tcp,
            flows: 1,
            family,
        }))
    };
    alone.chain(args.pairs().into_iter().map(pair)).collect()
}

impl Setting {
    /// Returns a row for each pod, without figures.
    fn rows(&self, conflist: &str, plugins: &str) -> Vec<Row> {
        match self {
            Setting::Alone(cell, _) => vec![Row::new(cell.setting(conflist, None), plugins)],
            Setting::Pair([one, other]) => [(one, other.rate), (other, one.rate)]
                .map(|(cell, beside)| Row::new(cell.setting(conflist, Some(beside)), plugins))
                .into(),
        }
    }

    fn measure(self, place: &Place<'_>) -> Result<Vec<Figures>> {
        match self {
            Setting::Alone(cell, with_round_trips) => {
                Ok(vec![place.alone(cell, with_round_trips)?])
            }
            Setting::Pair(cells) => Ok(place.pair(cells)?.into()),
        }
    }
}
