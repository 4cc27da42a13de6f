//! Attachment latency. In every setting, the plugin directories are measured in turns.

use crate::cli::Cli;
use crate::floor::FLOOR;
use crate::options::Contender;
use crate::programs;
use crate::report::{Beside, Cell, Column, Figures, Machine, Report, Row};
use crate::site::{Burst, Held, Plugins, Site};
use crate::stats::float;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

const MS: &str = "ms";
/// Duration of a burst divided by its number of calls.
const S_PER_CALL: &str = "s_per_call";
const TRACE: [&str; 4] = ["syscalls", "forks", "threads", "execs"];

/// One combination of the varied parameters.
struct Setting {
    network: usize,
    held: Held,
    concurrency: usize,
}

/// Measures all settings of the command line, and reports the figures.
pub(crate) fn run(cli: &Cli) -> Result<()> {
    cli.check()?;
    let machine = Machine::observe()?;
    let baselines = cli.common.baselines();
    let report = Report {
        machine,
        conditions: Vec::new(),
        baselines,
        by_round: false,
        rows: rows(cli)?,
    };
    let over = report.over_baseline();
    let mut columns: Vec<Column<'_>> = vec![
        ("p50 ms", MS, Cell::Value(|ms| ms.p50, 2)),
        ("p95", MS, Cell::Value(|ms| ms.p95, 2)),
        ("p99", MS, Cell::Value(|ms| ms.p99, 2)),
        ("min", MS, Cell::Value(|ms| ms.min, 2)),
        ("mean", MS, Cell::Value(|ms| ms.mean, 2)),
        (&over, MS, Cell::Ratio(Beside::Baseline)),
        ("/ floor", MS, Cell::Ratio(Beside::Floor)),
        (
            "calls/s",
            S_PER_CALL,
            Cell::Value(|seconds| 1.0 / seconds.mean, 1),
        ),
    ];
    if cli.syscalls {
        columns.extend(TRACE.map(|name| (name, name, Cell::Value(|count| count.p50, 0))));
    }
    report.publish(&columns, &cli.common)
}

fn rows(cli: &Cli) -> Result<Vec<Row>> {
    let contenders = cli
        .common
        .conflist
        .iter()
        .map(|network| cli.common.contenders(network));
    let contenders: Vec<_> = contenders.collect::<Result<_>>()?;
    contenders
        .iter()
        .flatten()
        .take(cli.common.plugins.len())
        .try_for_each(|one| programs::read_anew(&one.dir))?;
    let settings = settings(cli);
    let rounds: usize = settings.iter().map(|setting| setting.rounds(cli)).sum();
    let bar = progress(rounds)?;
    let mut rows = Vec::new();
    for setting in settings {
        let title = setting.title(cli);
        bar.set_message(title.clone());
        let mut sites = vec![(FLOOR, Site::floor(setting.concurrency)?)];
        for Contender {
            name,
            dir,
            conflist,
        } in contenders.get(setting.network).into_iter().flatten()
        {
            let plugins = Plugins {
                conflist,
                dir,
                args: "",
            };
            let site = Site::plugins(plugins, setting.held, setting.concurrency);
            sites.push((name, site.with_context(|| format!("{name}: {title}"))?));
        }
        for (plugins, site) in &sites {
            site.settle(cli.beside)
                .with_context(|| format!("{plugins}: pods beside"))?;
        }
        rows.extend(measure(cli, &setting, &mut sites, &bar).with_context(|| title)?);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// Measures one setting. Returns the rows of all ADDs, then the rows of all DELs.
fn measure(
    cli: &Cli,
    setting: &Setting,
    sites: &mut [(&str, Site<'_>)],
    bar: &ProgressBar,
) -> Result<Vec<Row>> {
    let rows = |verb| {
        sites
            .iter()
            .map(|(name, _)| setting.row(cli, verb, name))
            .collect::<Vec<_>>()
    };
    let (mut adds, mut dels) = (rows("ADD"), rows("DEL"));
    for round in 0..setting.rounds(cli) {
        for turn in order(round, sites.len()) {
            let (name, site) = &mut sites[turn];
            let (add, del) = site.round(false).with_context(|| (*name).to_owned())?;
            if round >= cli.warmup {
                adds[turn].add(Ok(figures(&add)));
                dels[turn].add(Ok(figures(&del)));
            }
        }
        bar.inc(1);
    }
    if cli.syscalls && cli.concurrency.first() == Some(&setting.concurrency) {
        for (turn, (name, site)) in sites
            .iter_mut()
            .enumerate()
            .filter(|(_, (name, _))| *name != FLOOR)
        {
            let (add, del) = site
                .round(true)
                .with_context(|| format!("{name} under strace"))?;
            adds[turn].add(Ok(traced(&add)));
            dels[turn].add(Ok(traced(&del)));
        }
    }
    adds.extend(dels);
    Ok(adds)
}

fn figures(burst: &Burst) -> Figures {
    let times = burst.took.iter().map(|took| (MS, took.as_secs_f64() * 1e3));
    times
        .chain([(
            S_PER_CALL,
            burst.wall.as_secs_f64() / float(burst.took.len()),
        )])
        .collect()
}

/// Returns the numbers of system calls, forks, threads and execs that strace counted, summed over
/// the concurrently attached pods.
fn traced(burst: &Burst) -> Figures {
    let trace = burst.trace;
    let counts = [trace.syscalls, trace.forks, trace.threads, trace.execs];
    TRACE.into_iter().zip(counts.map(float)).collect()
}

impl Setting {
    fn title(&self, cli: &Cli) -> String {
        let row = self.row(cli, "ADD", "");
        row.setting
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn rounds(&self, cli: &Cli) -> usize {
        cli.warmup + cli.runs.div_ceil(self.concurrency)
    }

    fn row(&self, cli: &Cli, verb: &str, plugins: &str) -> Row {
        let Held { leases, ports } = self.held;
        let setting = vec![
            ("conflist", cli.common.conflist[self.network].label()),
            ("leases", leases.to_string()),
            ("ports", ports.to_string()),
            ("at once", self.concurrency.to_string()),
            ("verb", verb.to_owned()),
        ];
        Row::new(setting, plugins)
    }
}

fn settings(cli: &Cli) -> Vec<Setting> {
    let mut settings = Vec::new();
    for network in 0..cli.common.conflist.len() {
        for &leases in &cli.leases {
            for held in cli.ports.iter().map(|&ports| Held { leases, ports }) {
                settings.extend(cli.concurrency.iter().map(|&concurrency| Setting {
                    network,
                    held,
                    concurrency,
                }));
            }
        }
    }
    settings
}

/// Returns the order of the contenders in a round. Over all rounds, each contender has each
/// position and follows each other contender equally often. So work that the kernel defers after a
/// call affects all contenders alike.
pub(crate) fn order(round: usize, contenders: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..contenders).collect();
    order.rotate_left(round / 2 % contenders.max(1));
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Creates a progress bar.
pub(crate) fn progress(rounds: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {eta:>4} left  {msg}")?;
    Ok(ProgressBar::new(u64::try_from(rounds)?).with_style(style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contender_takes_each_place_equally_often() {
        let rounds: Vec<_> = (0..6).map(|round| order(round, 3)).collect();
        for place in 0..3 {
            let mut there: Vec<_> = rounds.iter().map(|order| order[place]).collect();
            there.sort_unstable();
            assert_eq!(there, [0, 0, 1, 1, 2, 2], "place {place}");
        }
    }

    #[test]
    fn each_contender_follows_each_other_equally_often_within_rounds() {
        let mut pairs: Vec<_> = (0..6)
            .map(|round| order(round, 3))
            .flat_map(|o| [(o[0], o[1]), (o[1], o[2])])
            .collect();
        pairs.sort_unstable();
        let each = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
        assert_eq!(
            pairs,
            each.into_iter()
                .flat_map(|pair| [pair, pair])
                .collect::<Vec<_>>()
        );
    }
}
