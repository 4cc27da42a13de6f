//! The command line of `braid-bench shaping`.

use super::cell::{Cell, Direction, Family, Rate};
use crate::options::Common;
use crate::traffic::Protocol;
use anyhow::{Result, bail};

/// Measure what `bandwidth` plugins do to traffic, several directories of plugins side by side.
///
/// Pods are attached by really calling the plugins, with the limits in `runtimeConfig.bandwidth`.
/// These are the same rate both ways, and a burst of 10 ms of it and 64 KiB at least.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Limits in Mbit/s: 1M, 10M, 1000M
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "RATE,…",
        default_value = "10M,100M"
    )]
    rates: Vec<Rate>,
    /// Direction of the traffic, seen from the pod
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "DIRECTION,…",
        default_value = "ingress,egress"
    )]
    direction: Vec<Direction>,
    /// Protocol of the traffic
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PROTOCOL,…",
        default_value = "tcp,udp"
    )]
    protocol: Vec<Protocol>,
    /// Number of flows that share the rate
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "1")]
    flows: Vec<u16>,
    /// Version of IP
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "FAMILY,…",
        default_value = "4"
    )]
    family: Vec<Family>,
    /// Congestion control of bulk over TCP: cubic, bbr, … [default: the node's]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// Seconds for which each figure is measured, at least; slow rates longer
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) seconds: u64,
    /// Rounds of each setting, in turns; the table shows the median of each figure
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) rounds: usize,
    /// Fail when a budget is not kept by a directory that is not the baseline
    #[arg(long)]
    pub(crate) enforce: bool,
}

impl Args {
    /// Refuses what clap can't see.
    pub(crate) fn check(&self) -> Result<()> {
        if self.seconds == 0 || self.rounds == 0 || self.flows.contains(&0) {
            bail!("--seconds, --rounds and --flows start at 1");
        }
        self.common.check()
    }

    /// All cells of one conflist.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &family in &self.family {
            for &rate in &self.rates {
                for &direction in &self.direction {
                    for &protocol in &self.protocol {
                        let cell = |&flows| Cell {
                            rate,
                            direction,
                            protocol,
                            flows,
                            family,
                        };
                        cells.extend(self.flows.iter().map(cell));
                    }
                }
            }
        }
        cells
    }

    /// The settings in which two pods of different rates send at once.
    pub(crate) fn pairs(&self) -> Vec<(Family, Direction)> {
        self.family
            .iter()
            .flat_map(|family| self.direction.iter().map(|direction| (*family, *direction)))
            .collect()
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
    fn a_list_that_is_given_is_measured_as_given() {
        assert_eq!(
            (args(&[]).cells().len(), args(&[]).pairs().len()),
            (2 * 2 * 2, 2)
        );
        let args = args(&[
            "--rates=2M",
            "--family=6",
            "--protocol=udp",
            "--direction=egress",
            "--flows=3",
        ]);
        let (direction, protocol) = (Direction::Egress, Protocol::Udp);
        let rate = "2M".parse().unwrap();
        assert_eq!(
            args.cells(),
            [Cell {
                rate,
                direction,
                protocol,
                flows: 3,
                family: Family::V6
            }]
        );
    }

    #[test]
    fn numbers_that_measure_nothing_are_refused() {
        assert!(args(&["--flows=4"]).check().is_ok());
        assert!(args(&["--flows=1,0"]).check().is_err());
    }
}
