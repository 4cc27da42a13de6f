//! What a port of the host costs the traffic that enters by it, side by side.
//!
//! ```text
//!  cli ─► run: a site for each contender and number of ports, all at once, in turns in each round
//!           ├─► site: node, the pod behind the port, other ports, who connects from outside
//!           └─► measure ─► connections: how many new ones a second
//!                      ├─► goodput: how fast one flow of TCP is
//!                      ├─► traffic: round trips of UDP
//!                      └─► conntrack: what the round leaves is forgotten
//!         rounds ─► figures: medians and ratios ─► report (table, JSON), budget
//! ```

mod budget;
pub(crate) mod cli;
mod connections;
mod conntrack;
mod figures;
mod goodput;
mod measure;
mod report;
mod site;

use crate::cli::Contender;
use crate::report::{Machine, publish};
use crate::run::{FLOOR, order, progress};
use anyhow::{Context, Result};
use cli::Args;
use figures::{Figures, Sampled};
use report::Report;
use site::Site;
use std::process::Command;

/// Measures all contenders of the command line and reports them.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    let machine = Machine::observe()?;
    let sampled = rounds(args)?;
    let report = Report {
        machine,
        iptables: iptables(),
        baselines: args.baselines().map(str::to_owned).collect(),
        position: args.position,
        rounds: args.rounds,
        rows: figures::rows(&sampled, &args.baselines().collect::<Vec<_>>()),
    };
    publish(&report, &report.table(), &args.common)?;
    budget::judge(&report, args.enforce)
}

/// The version of `iptables` and whether it writes nf_tables' rules, where there is one.
fn iptables() -> Option<String> {
    let output = Command::new("iptables").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// All rounds; a first one that does not count has the addresses resolved and the code in the caches.
fn rounds(args: &Args) -> Result<Vec<Sampled>> {
    let sites = sites(args)?;
    let mut sampled: Vec<Sampled> = sites.iter().map(|(name, site)| Sampled::new(name, site.ports)).collect();
    let bar = progress(sites.len() * (args.rounds + 1))?;
    for round in 0..=args.rounds {
        for turn in order(round, sites.len()) {
            let (Some((name, site)), Some(sampled)) = (sites.get(turn), sampled.get_mut(turn)) else { continue };
            bar.set_message(format!("{name}, {} ports", site.ports));
            let figures: Figures<f64> =
                measure::round(site, args).with_context(|| format!("{name}, {} ports", site.ports))?;
            if round > 0 {
                sampled.rounds.push(figures);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(sampled)
}

/// The floor, whose pod has no port, and each contender's nodes.
fn sites(args: &Args) -> Result<Vec<(String, Site)>> {
    let contenders = args.common.contenders(&args.conflist)?;
    let bar = progress(contenders.len() * args.ports.len())?;
    let mut sites = Vec::new();
    for Contender { name, dir, conflist } in &contenders {
        if sites.is_empty() {
            sites.push((FLOOR.to_owned(), Site::new(conflist, dir, 0, args.position).context(FLOOR)?));
        }
        for &ports in &args.ports {
            let title = format!("{name}, {ports} ports");
            bar.set_message(format!("{title}: ADD"));
            sites.push(((*name).to_owned(), Site::new(conflist, dir, ports, args.position).context(title)?));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(sites)
}
