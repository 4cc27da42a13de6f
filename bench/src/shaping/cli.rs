//! The command line of `braid-bench shaping`.

use super::cell::{Cell, Direction, Family, Rate};
use crate::cli::{Common, Network};
use crate::traffic::Protocol;
use anyhow::{Result, bail};

/// Measure what `bandwidth` plugins do to traffic, several directories of plugins side by side.
///
/// Pods are attached by really calling the plugins, with the limits in `runtimeConfig.bandwidth`: the same rate both ways,
/// a burst of 10 ms of it and 64 KiB at least. A list without a value is measured at a few settings, with `--full` at all.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    /// A list of a main plugin and `bandwidth`; repeat for several. `NAME=FILE` after a comma is for one directory
    #[arg(long, value_name = "FILE[,NAME=FILE]…", required = true)]
    pub(crate) conflist: Vec<Network>,
    /// Limits in bits per second: 500k, 10M, 1G [default: 10M,100M; full: 1M,10M,100M,1G]
    #[arg(long, value_delimiter = ',', value_name = "RATE,…")]
    rates: Vec<Rate>,
    /// Which way the traffic goes, seen from the pod [default: both]
    #[arg(long, value_delimiter = ',', value_name = "DIRECTION,…")]
    direction: Vec<Direction>,
    /// What is sent [default: both]
    #[arg(long, value_delimiter = ',', value_name = "PROTOCOL,…")]
    protocol: Vec<Protocol>,
    /// How many flows share the rate [default: 1; full: 1,4,16]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    flows: Vec<u16>,
    /// Version of IP [default: 4; full: 4,6]
    #[arg(long, value_delimiter = ',', value_name = "FAMILY,…")]
    family: Vec<Family>,
    /// All settings of the lists that are not given
    #[arg(long)]
    full: bool,
    /// How bulk over TCP finds its rate: cubic, bbr, … [default: the node's]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// How long each figure is measured, at least; slow rates longer
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) seconds: u64,
    /// How often each setting is measured, in turns; the table shows the middle of each figure
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) rounds: usize,
    /// The directory that the others are compared with; the first one unless given
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Fail when a budget is not kept by a directory that is not the baseline
    #[arg(long)]
    pub(crate) enforce: bool,
}

impl Args {
    /// What clap can't see.
    pub(crate) fn check(&self) -> Result<()> {
        self.common.check_names(&self.conflist, self.baseline.as_ref())?;
        if self.seconds == 0 || self.rounds == 0 || self.flows.contains(&0) {
            bail!("--seconds, --rounds and --flows start at 1");
        }
        Ok(())
    }

    /// The name of the directory that the others are compared with.
    pub(crate) fn baseline(&self) -> &str {
        self.common.baseline(self.baseline.as_ref())
    }

    /// All cells of one conflist.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for family in self.families() {
            for &rate in &self.chosen(&self.rates, &[Rate::M10, Rate::M100], &Rate::ALL) {
                for direction in self.directions() {
                    for protocol in self.chosen(&self.protocol, &Protocol::ALL, &Protocol::ALL) {
                        let flows = self.chosen(&self.flows, &[1], &[1, 4, 16]);
                        cells.extend(flows.into_iter().map(|flows| Cell { rate, direction, protocol, flows, family }));
                    }
                }
            }
        }
        cells
    }

    /// The settings in which two pods of different rates send at once.
    pub(crate) fn pairs(&self) -> Vec<(Family, Direction)> {
        let directions = self.directions();
        self.families().into_iter().flat_map(|family| directions.iter().map(move |way| (family, *way))).collect()
    }

    fn families(&self) -> Vec<Family> {
        self.chosen(&self.family, &[Family::V4], &Family::ALL)
    }

    fn directions(&self) -> Vec<Direction> {
        self.chosen(&self.direction, &Direction::ALL, &Direction::ALL)
    }

    fn chosen<T: Copy>(&self, given: &[T], few: &[T], all: &[T]) -> Vec<T> {
        match given {
            [] if self.full => all.to_vec(),
            [] => few.to_vec(),
            given => given.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Other};
    use clap::Parser as _;

    fn args(more: &[&str]) -> Args {
        let given = ["braid-bench", "shaping", "--plugins=a=/a", "--conflist=x"];
        match Cli::try_parse_from(given.iter().chain(more)).unwrap().other {
            Some(Other::Shaping(args)) => args,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn few_cells_unless_all_are_asked_for() {
        assert_eq!(args(&[]).cells().len(), 2 * 2 * 2);
        assert_eq!(args(&["--full"]).cells().len(), 4 * 2 * 2 * 3 * 2);
        assert_eq!(args(&["--full"]).pairs().len(), 4);
    }

    #[test]
    fn a_list_that_is_given_is_measured_as_given() {
        let args = args(&["--full", "--rates=2M", "--family=6", "--protocol=udp", "--direction=egress", "--flows=3"]);
        let (direction, protocol) = (Direction::Egress, Protocol::Udp);
        let rate = "2M".parse().unwrap();
        assert_eq!(args.cells(), [Cell { rate, direction, protocol, flows: 3, family: Family::V6 }]);
    }

    #[test]
    fn numbers_that_measure_nothing_are_refused() {
        assert!(args(&["--flows=4"]).check().is_ok());
        assert!(args(&["--flows=1,0"]).check().is_err());
        assert_eq!(args(&["--baseline=b"]).check().unwrap_err().to_string(), "\"b\" is none of the --plugins");
    }
}
