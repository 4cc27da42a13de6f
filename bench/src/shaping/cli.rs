//! Command line of `braid-bench shaping`.

use super::cell::{Cell, Direction, Family, Rate};
use crate::options::Common;
use crate::traffic::Protocol;
use anyhow::{Result, bail};

/// Measure the effect of `bandwidth` plugins on traffic, for several directories of plugins side by
/// side.
///
/// Pods are attached by real calls of the plugins, with the limits in `runtimeConfig.bandwidth`:
/// the same rate in both directions, and a burst of 10 ms of the rate, at least 64 KiB.
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
    /// Direction of the traffic, from the pod's point of view
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
    /// Congestion control of bulk traffic over TCP: cubic, bbr, … [default: the node's]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// Minimum seconds for which each figure is measured; slow rates take longer
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) seconds: u64,
    /// Rounds of each setting, in turns; the table shows the median of each figure
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) rounds: usize,
    /// Fail if a directory that is not the baseline breaks a budget
    #[arg(long)]
    pub(crate) enforce: bool,
}

impl Args {
    /// Refuses arguments that clap cannot check.
    pub(crate) fn check(&self) -> Result<()> {
        if self.seconds == 0 || self.rounds == 0 || self.flows.contains(&0) {
            bail!("--seconds, --rounds and --flows start at 1");
        }
        self.common.check()
    }

    /// Returns all cells of one conflist.
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

    /// Returns the settings in which two pods of different rates send at the same time.
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
    fn a_given_list_is_measured_unchanged() {
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
