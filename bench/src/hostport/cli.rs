//! The command line of `braid-bench hostport`.

use crate::cli::{Common, Network};
use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::Serialize;
use std::time::Duration;

/// The most ports that a node of the bench has room for.
const MOST_PORTS: u16 = 20_000;

/// Measure what a port of the host costs the traffic that enters by it, several directories of plugins side by side.
///
/// Pods are attached by really calling the plugins, with the ports in `runtimeConfig.portMappings`; the client is behind
/// the node's uplink. The floor is a row of its own: the same client, and the pod's own address without any port.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    /// A list in which a plugin declares the capability `portMappings`. `NAME=FILE` after a comma is for one directory
    #[arg(long, value_name = "FILE[,NAME=FILE]…")]
    pub(crate) conflist: Network,
    /// How many ports lead to pods of the node
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "1,1000")]
    pub(crate) ports: Vec<u16>,
    /// When the measured port was added
    #[arg(long, value_enum, default_value_t = Position::Middle)]
    pub(crate) position: Position,
    /// How often each figure is measured, in turns
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub(crate) rounds: usize,
    /// How long each figure is measured
    #[arg(long, value_name = "MS", default_value_t = 500)]
    window: u64,
    /// The directories of which the better one in each figure is what the others are compared with; the first one unless
    /// given
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    baseline: Vec<String>,
    /// Fail when a budget is not kept by a directory that is no baseline
    #[arg(long)]
    pub(crate) enforce: bool,
}

/// Where the measured port stands among all of its node, in the order of ADD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Position {
    First,
    Middle,
    Last,
}

impl Args {
    /// What clap can't see.
    pub(crate) fn check(&self) -> Result<()> {
        self.common.check_names(std::slice::from_ref(&self.conflist), &self.baseline)?;
        if self.rounds == 0 || self.window == 0 {
            bail!("--rounds and --window start at 1");
        }
        match self.ports.iter().find(|&&ports| ports == 0 || ports > MOST_PORTS) {
            Some(ports) => bail!("--ports {ports} is outside 1-{MOST_PORTS}"),
            None => Ok(()),
        }
    }

    /// The names of the directories that the others are compared with.
    pub(crate) fn baselines(&self) -> impl Iterator<Item = &str> {
        let first = self.baseline.is_empty().then(|| self.common.baseline(None));
        self.baseline.iter().map(String::as_str).chain(first)
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_millis(self.window)
    }
}

impl Position {
    /// How many of the other ports are there before the measured one.
    pub(crate) fn before(self, others: u16) -> u16 {
        match self {
            Position::First => 0,
            Position::Middle => others / 2,
            Position::Last => others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Other};
    use clap::Parser as _;

    fn args(more: &[&str]) -> Args {
        let given = ["braid-bench", "hostport", "--plugins=a=/a", "--plugins=b=/b", "--conflist=x"];
        match Cli::try_parse_from(given.iter().chain(more)).unwrap().other {
            Some(Other::Hostport(args)) => args,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn several_baselines_may_be_named_and_the_first_directory_is_one_by_itself() {
        assert_eq!(args(&[]).baselines().collect::<Vec<_>>(), ["a"]);
        assert_eq!(args(&["--baseline=b,a"]).baselines().collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(args(&["--baseline=b,c"]).check().unwrap_err().to_string(), "\"c\" is none of the --plugins");
    }

    #[test]
    fn numbers_that_measure_nothing_are_refused() {
        assert!(args(&["--ports=1,20000"]).check().is_ok());
        assert_eq!(args(&["--ports=1,0"]).check().unwrap_err().to_string(), "--ports 0 is outside 1-20000");
        assert!(args(&["--window=0"]).check().is_err());
    }

    #[test]
    fn the_middle_has_as_many_before_as_after() {
        assert_eq!(Position::Middle.before(998), 499);
        assert_eq!([Position::First, Position::Last].map(|position| position.before(999)), [0, 999]);
    }
}
