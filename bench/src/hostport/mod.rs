//! Cost of a host port for the traffic through it, side by side.
//!
//! ```text
//!  cli ─► run: a site per contender and number of ports, all running, in turns in each round
//!           ├─► site: node, the pod behind the port, other ports, the client outside
//!           ├─► connections: new ones per second
//!           ├─► goodput: of one TCP flow
//!           ├─► traffic: round trips over UDP
//!           └─► conntrack: deletes the round's entries
//!         rows ─► report (table, JSON), budget
//! ```

mod budget;
pub(crate) mod cli;
mod connections;
mod conntrack;
mod goodput;
mod site;

use crate::budget::judge;
use crate::floor::FLOOR;
use crate::options::Contender;
use crate::report::{Beside, Cell, Column, Figures, Machine, Report, Row};
use crate::run::{order, progress};
use crate::stats::{Spread, float};
use crate::traffic::{Protocol, rr};
use anyhow::{Context, Result};
use cli::Args;
use site::Site;
use std::process::Command;
use std::time::Duration;

/// New TCP connections.
const CONNECTIONS: &str = "connections_per_s";
/// CPU time of client and server per connection.
const CONNECTION_CPU: &str = "cpu_us_per_connection";
/// Goodput of one TCP flow.
const GOODPUT: &str = "gbit_per_s";
/// Busy time of all processors per Gbit of goodput.
const GOODPUT_CPU: &str = "cpu_s_per_gbit";
/// UDP requests and their responses, one after the other.
const TRIPS: &str = "udp_trips_per_s";

/// Measures all plugin directories of the command line, and reports the figures.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    let mut conditions = vec![("rounds", args.rounds.to_string())];
    conditions.extend(iptables().map(|version| ("iptables", version)));
    let (machine, baselines) = (Machine::observe()?, args.common.baselines());
    let report = Report {
        machine,
        conditions,
        baselines,
        by_round: true,
        rows: rows(args)?,
    };
    let over = report.over_baseline();
    let mut columns: Vec<Column<'_>> = Vec::new();
    for (title, figure, decimals, cpu, of_cpu, cpu_decimals) in [
        ("conn/s", CONNECTIONS, 0, "own cpu µs", CONNECTION_CPU, 1),
        ("Gbit/s", GOODPUT, 2, "cpu s/Gbit", GOODPUT_CPU, 3),
    ] {
        columns.extend([
            (title, figure, Cell::Value(|spread| spread.p50, decimals)),
            ("± %", figure, Cell::Value(Spread::off_percent, 1)),
            (&*over, figure, Cell::Ratio(Beside::Baseline)),
            ("/ few", figure, Cell::Ratio(Beside::First)),
            ("/ floor", figure, Cell::Ratio(Beside::Floor)),
            (cpu, of_cpu, Cell::Value(|spread| spread.p50, cpu_decimals)),
        ]);
    }
    columns.extend([
        ("udp rr/s", TRIPS, Cell::Value(|spread| spread.p50, 0)),
        ("± %", TRIPS, Cell::Value(Spread::off_percent, 1)),
        (&*over, TRIPS, Cell::Ratio(Beside::Baseline)),
    ]);
    report.publish(&columns, &args.common)?;
    judge(
        "ratios of medians in the same rounds",
        &budget::of(&report),
        args.enforce,
    )
}

/// Returns the version of `iptables`. The text tells if `iptables` writes nf_tables rules.
fn iptables() -> Option<String> {
    let output = Command::new("iptables").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Measures all rounds and returns a row for each site. An unmeasured first round resolves the
/// addresses and warms the caches.
fn rows(args: &Args) -> Result<Vec<Row>> {
    let network = args.common.conflist.first().context("no --conflist")?;
    let contenders = args.common.contenders(network)?;
    let sites = sites(args, &contenders)?;
    let mut rows: Vec<Row> = sites
        .iter()
        .map(|(name, site)| row(name, site.ports))
        .collect();
    let bar = progress(sites.len() * (args.rounds + 1))?;
    for round in 0..=args.rounds {
        for turn in order(round, sites.len()) {
            let title = rows[turn].title();
            bar.set_message(title.clone());
            let figures = measure(&sites[turn].1, args.window()).context(title)?;
            if round > 0 {
                rows[turn].add(Ok(figures));
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn row(plugins: &str, ports: u16) -> Row {
    Row::new(vec![("ports", ports.to_string())], plugins)
}

/// Creates the sites. The first site is the floor, with a pod without host ports. Then each plugin
/// directory gets a node for each number of ports.
fn sites<'a>(args: &Args, contenders: &'a [Contender<'a>]) -> Result<Vec<(&'a str, Site<'a>)>> {
    let bar = progress(contenders.len() * args.ports().len())?;
    let mut sites = Vec::new();
    for Contender {
        name,
        dir,
        conflist,
    } in contenders
    {
        if sites.is_empty() {
            sites.push((FLOOR, Site::new(conflist, dir, 0).context(FLOOR)?));
        }
        for ports in args.ports() {
            let title = row(name, ports).title();
            bar.set_message(format!("{title}: ADD"));
            sites.push((*name, Site::new(conflist, dir, ports).context(title)?));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(sites)
}

/// Measures one round of one site.
fn measure(site: &Site<'_>, length: Duration) -> Result<Figures> {
    let way = site.way()?;
    let opened = connections::measure(&way, length)?;
    conntrack::forget(&site.attached.node)?;
    let received = goodput::measure(&way, length)?;
    let trips = rr::measure(&way, Protocol::Udp, Duration::ZERO, length).context("round trips")?;
    let took: Duration = trips.iter().sum();
    let mut figures = vec![(TRIPS, float(trips.len()) / took.as_secs_f64())];
    figures.extend([(CONNECTIONS, opened.per_s), (CONNECTION_CPU, opened.cpu_us)]);
    figures.extend([
        (GOODPUT, received.gbit_per_s),
        (GOODPUT_CPU, received.cpu_s_per_gbit),
    ]);
    Ok(figures)
}
