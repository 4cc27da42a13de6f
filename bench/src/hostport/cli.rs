//! Command line of `braid-bench hostport`.

use crate::options::Common;
use anyhow::{Result, bail};
use std::time::Duration;

/// Maximum number of ports on a node of the bench.
const MOST_PORTS: u16 = 20_000;

/// Measure the cost of a host port for the traffic through it, for several directories of plugins
/// side by side.
///
/// Pods are attached by real calls of the plugins, with the ports in `runtimeConfig.portMappings`.
/// The client is behind the node's uplink. The floor is a separate row: the same client connects to
/// the pod's own address without a port mapping. A plugin of the list must declare the capability
/// `portMappings`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Number of ports forwarded to pods of the node; several values make several nodes
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N,…",
        default_value = "1,1000"
    )]
    ports: Vec<u16>,
    /// Rounds; each measures every figure once, in turns
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub(crate) rounds: usize,
    /// Time for which each figure is measured
    #[arg(long, value_name = "MS", default_value_t = 500)]
    window: u64,
    /// Fail if a directory that is not a baseline breaks a budget
    #[arg(long)]
    pub(crate) enforce: bool,
}

impl Args {
    /// Refuses arguments that clap cannot check.
    pub(crate) fn check(&self) -> Result<()> {
        if self.rounds == 0 || self.window == 0 {
            bail!("--rounds and --window start at 1");
        }
        if self.common.conflist.len() > 1 {
            bail!("hostport measures one --conflist");
        }
        match self
            .ports
            .iter()
            .find(|&&ports| ports == 0 || ports > MOST_PORTS)
        {
            Some(ports) => bail!("--ports {ports} is outside 1-{MOST_PORTS}"),
            None => self.common.check(),
        }
    }

    /// Returns the numbers of ports in ascending order.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let mut ports = self.ports.clone();
        ports.sort_unstable();
        ports
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_millis(self.window)
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Other};
    use clap::Parser as _;

    #[test]
    fn numbers_that_measure_nothing_are_refused() {
        let refused = |more: &str| {
            let given = [
                "braid-bench",
                "hostport",
                "--plugins=a=/a",
                "--conflist=x",
                more,
            ];
            match Cli::try_parse_from(given).unwrap().other {
                Some(Other::Hostport(args)) => args.check().err().map(|err| err.to_string()),
                _ => panic!("another command"),
            }
        };
        assert_eq!(refused("--ports=1,20000"), None);
        assert_eq!(
            refused("--ports=1,0").unwrap(),
            "--ports 0 is outside 1-20000"
        );
        assert!(refused("--window=0").is_some());
        assert!(refused("--conflist=y").is_some());
    }
}
