//! Attachment latency of plugins that query an API server for a pod's networks.
//!
//! ```text
//!  API server ── link ──┬─ node of thin ─┐
//!  (where the bench     ├─ node of thick ├─ rounds: ADD and DEL of a pod each, in turns ─► report, budgets
//!   runs)               └─ node of braid ┘
//!      └── far server ─────── one more ADD and DEL, whose time shows the number of round trips
//! ```

mod audit;
mod budget;
pub(crate) mod cli;

use crate::budget::judge;
use crate::conflist::Conflist;
use crate::floor::FLOOR;
use crate::programs;
use crate::report::{Beside, Cell, Column, Figures, Machine, Report, Row};
use crate::run::{order, progress};
use crate::site::{Burst, Held, Plugins, Site};
use anyhow::{Context, Result};
use cli::Args;
use std::time::Duration;

const MS: &str = "ms";
const ROUND_TRIPS: &str = "round_trips";
const ADD: &str = "ADD";
const DEL: &str = "DEL";

/// Measures all plugin directories, reports the figures, and judges the budgets.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    let machine = Machine::observe()?;
    let (rows, asked) = rows(args)?;
    let baselines = args.common.baselines();
    let report = Report {
        machine,
        conditions: Vec::new(),
        baselines,
        by_round: false,
        rows,
    };
    let over = report.over_baseline();
    let columns: Vec<Column<'_>> = vec![
        ("p50 ms", MS, Cell::Value(|ms| ms.p50, 2)),
        ("p95", MS, Cell::Value(|ms| ms.p95, 2)),
        ("min", MS, Cell::Value(|ms| ms.min, 2)),
        ("mean", MS, Cell::Value(|ms| ms.mean, 2)),
        (&over, MS, Cell::Ratio(Beside::Baseline)),
        ("/ floor", MS, Cell::Ratio(Beside::Floor)),
        (
            "round trips",
            ROUND_TRIPS,
            Cell::Value(|trips| trips.p50, 0),
        ),
    ];
    report.publish(&columns, &args.common)?;
    for line in asked {
        eprintln!("{line}");
    }
    judge("ratios of medians", &budget::of(&report), args.enforce)
}

/// Measures all rounds. Returns the rows of all ADDs, then the rows of all DELs, and a line for
/// each directory with its requests to the API server.
fn rows(args: &Args) -> Result<(Vec<Row>, Vec<String>)> {
    let network = args.common.conflist.first().context("no --conflist")?;
    let plugins = args.common.contenders(network)?;
    plugins
        .iter()
        .try_for_each(|one| programs::read_anew(&one.dir))?;
    let far: Vec<Option<Conflist>> = plugins
        .iter()
        .map(|one| args.far(one.name).map(Conflist::read).transpose())
        .collect::<Result<_>>()?;
    let mut sites = vec![(FLOOR, Site::floor(1)?)];
    for one in &plugins {
        let called = Plugins {
            conflist: &one.conflist,
            dir: &one.dir,
            args: args.cni_args(one.name),
        };
        let site =
            site(args, one.name, called, sites.len()).with_context(|| one.name.to_owned())?;
        sites.push((one.name, site));
    }
    let [mut adds, mut dels] = [ADD, DEL].map(|verb| {
        sites
            .iter()
            .map(|(name, _)| row(verb, name))
            .collect::<Vec<_>>()
    });
    let bar = progress(args.warmup + args.runs)?;
    for round in 0..args.warmup + args.runs {
        for turn in order(round, sites.len()) {
            let (name, site) = &mut sites[turn];
            let (add, del) = site.round(false).with_context(|| (*name).to_owned())?;
            if round >= args.warmup {
                adds[turn].add(Ok(times(&add)));
                dels[turn].add(Ok(times(&del)));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut asked = Vec::new();
    for (turn, far) in far
        .iter()
        .enumerate()
        .map(|(at, far)| (at + 1, far.as_ref()))
    {
        let (name, site) = &mut sites[turn];
        let [add, del] = one_more(args, name, site, far, &mut asked)
            .with_context(|| format!("{name}: one more"))?;
        adds[turn].add(Ok(add));
        dels[turn].add(Ok(del));
    }
    adds.extend(dels);
    Ok((adds, asked))
}

/// Creates the node of one plugin directory. Links it to this network namespace, and starts the
/// directory's daemon, if any.
fn site<'a>(args: &Args, name: &str, plugins: Plugins<'a>, number: usize) -> Result<Site<'a>> {
    let mut site = Site::plugins(plugins, Held::default(), 1)?;
    site.node.link_here(u8::try_from(number)?)?;
    site.expect(args.interfaces(name));
    args.daemon(name)
        .map_or(Ok(()), |daemon| site.start(daemon))?;
    site.settle(args.beside(name)).context("pods beside")?;
    Ok(site)
}

/// Runs one more ADD and DEL. Returns the number of round trips of each call, calculated from its
/// time with the far API server. Adds a line with the requests of both calls to `asked`.
fn one_more<'a>(
    args: &Args,
    name: &str,
    site: &mut Site<'a>,
    far: Option<&'a Conflist>,
    asked: &mut Vec<String>,
) -> Result<[Figures; 2]> {
    let log = args.audit_log.as_deref();
    let from = log.map(audit::len).transpose()?;
    if let Some(conflist) = far {
        site.call_by(conflist);
    }
    let (add, del) = site.round(false)?;
    if let Some((log, from)) = log.zip(from) {
        let requests = audit::requests(log, from, namespace(args.cni_args(name)))?;
        asked.push(format!("{name}, ADD and DEL ask for: {requests}"));
    }
    let trips = |burst: &Burst| {
        let took: Duration = burst.took.iter().sum();
        far.map(|_| {
            (
                ROUND_TRIPS,
                took.div_duration_f64(args.round_trip()).floor(),
            )
        })
        .into_iter()
        .collect()
    };
    Ok([trips(&add), trips(&del)])
}

fn namespace(cni_args: &str) -> &str {
    cni_args
        .split(';')
        .find_map(|pair| pair.strip_prefix("K8S_POD_NAMESPACE="))
        .unwrap_or_default()
}

fn row(verb: &str, plugins: &str) -> Row {
    Row::new(vec![("verb", verb.to_owned())], plugins)
}

fn times(burst: &Burst) -> Figures {
    burst
        .took
        .iter()
        .map(|took| (MS, took.as_secs_f64() * 1e3))
        .collect()
}
