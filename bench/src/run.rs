//! The run: every setting, all contenders taking turns in it.

use crate::cli::{Cli, Contender};
use crate::programs;
use crate::report::Row;
use crate::site::{Burst, Held, Site};
use crate::stats::Summary;
use crate::strace::Trace;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// What the kernel's own row is called.
pub(crate) const FLOOR: &str = "floor";

/// One combination of what is varied.
struct Setting {
    network: usize,
    held: Held,
    concurrency: usize,
}

/// A contender's calls of one verb in one setting.
#[derive(Default)]
struct Samples {
    took: Vec<Duration>,
    wall: Duration,
    trace: Option<Trace>,
}

/// Measures all settings of the command line.
pub(crate) fn run(cli: &Cli) -> Result<Vec<Row>> {
    let contenders = cli.conflist.iter().map(|network| cli.common.contenders(network));
    let contenders: Vec<_> = contenders.collect::<Result<_>>()?;
    contenders.iter().flatten().take(cli.common.plugins.len()).try_for_each(|one| programs::read_anew(&one.dir))?;
    let settings = settings(cli);
    let rounds: usize = settings.iter().map(|setting| cli.warmup + cli.runs.div_ceil(setting.concurrency)).sum();
    let bar = progress(rounds)?;
    let mut rows = Vec::new();
    for setting in settings {
        let title = setting.title(cli);
        bar.set_message(title.clone());
        let mut sites = vec![(FLOOR, Site::floor(setting.concurrency)?)];
        for Contender { name, dir, conflist } in contenders.get(setting.network).into_iter().flatten() {
            let site = Site::chain(conflist, dir, setting.held, setting.concurrency);
            sites.push((name, site.with_context(|| format!("{name}: {title}"))?));
        }
        for (plugins, site) in &sites {
            site.settle(cli.beside).with_context(|| format!("{plugins}: pods beside"))?;
        }
        rows.extend(measure(cli, &setting, &mut sites, &bar).with_context(|| title)?);
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn measure(cli: &Cli, setting: &Setting, sites: &mut [(&str, Site<'_>)], bar: &ProgressBar) -> Result<Vec<Row>> {
    let mut samples: Vec<(Samples, Samples)> = Vec::new();
    samples.resize_with(sites.len(), Default::default);
    for round in 0..cli.warmup + cli.runs.div_ceil(setting.concurrency) {
        for turn in order(round, sites.len()) {
            let (Some((name, site)), Some((adds, dels))) = (sites.get_mut(turn), samples.get_mut(turn)) else {
                continue;
            };
            let (add, del) = site.round(false).with_context(|| (*name).to_owned())?;
            if round >= cli.warmup {
                adds.push(add);
                dels.push(del);
            }
        }
        bar.inc(1);
    }
    let strace = cli.syscalls && cli.concurrency.first() == Some(&setting.concurrency);
    for ((name, site), (adds, dels)) in
        sites.iter_mut().zip(&mut samples).filter(|((name, _), _)| strace && *name != FLOOR)
    {
        let (add, del) = site.round(true).with_context(|| format!("{name} under strace"))?;
        (adds.trace, dels.trace) = (Some(add.trace), Some(del.trace));
    }
    let (adds, dels): (Vec<_>, Vec<_>) = samples.into_iter().unzip();
    let names: Vec<_> = sites.iter().map(|(name, _)| *name).collect();
    Ok([("ADD", adds), ("DEL", dels)]
        .into_iter()
        .flat_map(|(verb, all)| setting.rows(cli, verb, &names, &all))
        .collect())
}

impl Samples {
    fn push(&mut self, burst: Burst) {
        self.took.extend(burst.took);
        self.wall += burst.wall;
    }
}

impl Setting {
    fn title(&self, cli: &Cli) -> String {
        let network = cli.conflist.get(self.network).map(crate::cli::Network::label).unwrap_or_default();
        let Held { leases, ports } = self.held;
        format!("{network}, {leases} leases, {ports} ports, {} at once", self.concurrency)
    }

    fn rows(&self, cli: &Cli, verb: &'static str, names: &[&str], samples: &[Samples]) -> Vec<Row> {
        let summaries: Vec<_> = samples.iter().map(|samples| Summary::of(&samples.took)).collect();
        let p50_of = |wanted: &str| {
            let mut named = names.iter().zip(&summaries);
            named.find_map(|(name, summary)| summary.filter(|_| *name == wanted)).map(|summary| summary.p50_ms)
        };
        let (baseline, floor) = (p50_of(cli.baseline()), p50_of(FLOOR));
        let row = |((name, samples), summary): ((&&str, &Samples), &Option<Summary>)| {
            let summary = (*summary)?;
            Some(Row {
                conflist: cli.conflist.get(self.network)?.label(),
                held: self.held,
                concurrency: self.concurrency,
                verb,
                plugins: (*name).to_owned(),
                summary,
                of_baseline: baseline.map(|p50| summary.p50_ms / p50),
                of_floor: floor.map(|p50| summary.p50_ms / p50),
                calls_per_s: per_second(samples),
                trace: samples.trace,
            })
        };
        names.iter().zip(samples).zip(&summaries).filter_map(row).collect()
    }
}

fn per_second(samples: &Samples) -> f64 {
    u32::try_from(samples.took.len()).map_or(0.0, f64::from) / samples.wall.as_secs_f64()
}

fn settings(cli: &Cli) -> Vec<Setting> {
    let mut settings = Vec::new();
    for network in 0..cli.conflist.len() {
        for &leases in &cli.leases {
            for held in cli.ports.iter().map(|&ports| Held { leases, ports }) {
                settings.extend(cli.concurrency.iter().map(|&concurrency| Setting { network, held, concurrency }));
            }
        }
    }
    settings
}

/// Who goes when in a round: everyone takes every place, and follows everyone else, so that what a call leaves to the
/// kernel to finish later burdens all alike.
pub(crate) fn order(round: usize, contenders: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..contenders).collect();
    order.rotate_left(round / 2 % contenders.max(1));
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// A bar for so many steps.
pub(crate) fn progress(rounds: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {eta:>4} left  {msg}")?;
    Ok(ProgressBar::new(u64::try_from(rounds)?).with_style(style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_takes_every_place_equally_often() {
        let rounds: Vec<_> = (0..6).map(|round| order(round, 3)).collect();
        for place in 0..3 {
            let mut there: Vec<_> = rounds.iter().map(|order| order[place]).collect();
            there.sort_unstable();
            assert_eq!(there, [0, 0, 1, 1, 2, 2], "place {place}");
        }
    }

    #[test]
    fn everyone_follows_each_other_equally_often_within_rounds() {
        let mut pairs: Vec<_> =
            (0..6).map(|round| order(round, 3)).flat_map(|o| [(o[0], o[1]), (o[1], o[2])]).collect();
        pairs.sort_unstable();
        let each = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
        assert_eq!(pairs, each.into_iter().flat_map(|pair| [pair, pair]).collect::<Vec<_>>());
    }
}
