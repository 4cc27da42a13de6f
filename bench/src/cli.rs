//! Command line of `braid-bench`.

use crate::options::Common;
use crate::{fabric, hostport, pods, shaping};
use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

/// Measure how long CNI plugins take to attach and detach a pod. Several directories of plugins are
/// compared with each other and with a floor, the kernel alone.
///
/// Each directory gets a separate node: network and mount namespace, empty /run and /var/lib/cni,
/// an uplink eth0. Its pods are network namespaces. The directories take turns in one run. Nothing
/// on the host changes, and nothing is left when the run ends or is killed. Needs root.
///
/// The floor is a separate row: a veth into the pod with bridge, address and default route, which
/// this process creates and deletes by netlink.
#[derive(Parser)]
#[command(
    name = "braid-bench",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) other: Option<Other>,
    #[command(flatten)]
    pub(crate) common: Common,
    /// ADDs (and DELs) to time for each directory in each setting
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) runs: usize,
    /// Rounds before the measured ones
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) warmup: usize,
    /// Number of pods attached concurrently; several values make several settings
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1")]
    pub(crate) concurrency: Vec<usize>,
    /// Number of addresses already held by other containers; several values make several settings
    ///
    /// N lease files are written for the first N free addresses of the first range. They have the
    /// format of the reference host-local: `<id>\r\n<ifname>`, mode 0600, and `last_reserved_ip.0`.
    /// Their folder is `<dataDir>/<network>`, on the node's own tmpfs. The range must have room for
    /// them, so use a /16 for 10,000.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    pub(crate) leases: Vec<usize>,
    /// Number of host ports already forwarded to other pods, a hundred to each; several values make
    /// several settings
    ///
    /// The list must have a plugin with the capability `portMappings`. The ports are TCP, from
    /// 10000 on.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    pub(crate) ports: Vec<u16>,
    /// Number of pods attached before a run; they stay attached, as on a node in use
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) beside: usize,
    /// Count system calls, forks and execs in one more ADD and DEL of each setting, at the first
    /// concurrency
    #[arg(long)]
    pub(crate) syscalls: bool,
}

/// Measurements other than attachment latency.
#[derive(Subcommand)]
pub(crate) enum Other {
    /// Measure the effect of `bandwidth` plugins on traffic
    Shaping(shaping::cli::Args),
    /// Measure the effect of `portmap` plugins' host ports on traffic
    Hostport(hostport::cli::Args),
    /// Measure attachment latency of plugins that query an API server for a pod's networks
    Pods(pods::cli::Args),
    /// Measure TCP throughput and request latency between pods of two nodes
    Fabric(fabric::cli::Args),
}

impl Cli {
    /// Refuses arguments that clap cannot check: unknown names, and numbers that measure nothing.
    pub(crate) fn check(&self) -> Result<()> {
        if self.runs == 0 || self.concurrency.contains(&0) {
            bail!("--runs and --concurrency start at 1");
        }
        self.common.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_must_be_measured_and_default_to_the_first_directory() {
        let cli = |more: &[&str]| {
            let given = [
                "braid-bench",
                "--plugins=a=/a",
                "--plugins=b=/b",
                "--conflist=x",
            ];
            Cli::try_parse_from(given.iter().chain(more)).unwrap()
        };
        assert_eq!(cli(&[]).common.baselines(), ["a"]);
        assert_eq!(cli(&["--baseline=b,a"]).common.baselines(), ["b", "a"]);
        assert!(cli(&["--baseline=b"]).check().is_ok());
        assert_eq!(
            cli(&["--baseline=b,c"]).check().unwrap_err().to_string(),
            "\"c\" is none of the --plugins"
        );
    }
}
