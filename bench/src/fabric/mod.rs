//! Traffic between the pods of two nodes, for several networks side by side.
//!
//! ```text
//!  API server ── lan ──┬─ node 1 ─ pod ┐ first directory      iperf3: throughput
//!  (where the bench    ├─ node 2 ─ pod ┘                      requests and responses: latency
//!   runs)              ├─ node 3 ─ pod ┐ second directory
//!                      └─ node 4 ─ pod ┘                      rounds in turns ─► report, budgets
//! ```

mod budget;
pub(crate) mod cli;
mod iperf;
mod lan;
mod links;
mod measure;
mod pair;

use crate::budget::judge;
use crate::report::{Beside, Cell, Column, Machine, Report, Row};
use crate::run::{order, progress};
use crate::stats::Spread;
use anyhow::{Context, Result};
use cli::Args;
use lan::Lan;
use measure::{CPU, MTU, P50, P95, THROUGHPUT};
use pair::Pair;

/// Measures all networks of the command line, reports the figures, and judges the budgets.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    let machine = Machine::observe()?;
    let conditions = vec![
        ("rounds", args.rounds.to_string()),
        ("iperf3", iperf::version()?),
    ];
    let report = Report {
        machine,
        conditions,
        baselines: args.common.baselines(),
        by_round: true,
        rows: rows(args)?,
    };
    let over = report.over_baseline();
    let mut columns: Vec<Column<'_>> = vec![("pod MTU", MTU, Cell::Value(|mtu| mtu.p50, 0))];
    for (title, figure, decimals) in [
        ("Gbit/s", THROUGHPUT, 2),
        ("p50 µs", P50, 1),
        ("p95 µs", P95, 1),
    ] {
        columns.extend([
            (title, figure, Cell::Value(|spread| spread.p50, decimals)),
            ("± %", figure, Cell::Value(Spread::off_percent, 1)),
            (&*over, figure, Cell::Ratio(Beside::Baseline)),
        ]);
    }
    columns.push(("cpu s/Gbit", CPU, Cell::Value(|cpu| cpu.p50, 3)));
    report.publish(&columns, &args.common)?;
    judge(
        "ratios of medians in the same rounds",
        &budget::judged(&report, args.unjudged()),
        args.enforce,
    )
}

/// Measures all rounds and returns a row for each network. An unmeasured first round resolves the
/// addresses and warms the caches.
fn rows(args: &Args) -> Result<Vec<Row>> {
    let plans = args.plans()?;
    let lan = Lan::new(args.mtu)?;
    let bar = progress(plans.len() * (args.rounds + 2))?;
    let (mut pairs, mut rows) = (Vec::new(), Vec::new());
    for plan in &plans {
        bar.set_message(plan.name.to_owned());
        pairs.push(Pair::new(plan, &lan, pairs.len()).with_context(|| plan.name.to_owned())?);
        let path = if plan.is_vxlan { "VXLAN" } else { "direct" };
        let setting = vec![("LAN MTU", args.mtu.to_string()), ("path", path.to_owned())];
        rows.push(Row::new(setting, plan.name));
        bar.inc(1);
    }
    for round in 0..=args.rounds {
        for turn in order(round, pairs.len()) {
            let title = rows[turn].title();
            bar.set_message(title.clone());
            let figures = measure::round(&pairs[turn], args.seconds).context(title)?;
            if round > 0 {
                rows[turn].add(Ok(figures));
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}
