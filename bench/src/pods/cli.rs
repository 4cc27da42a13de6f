//! Command line of `braid-bench pods`.

use crate::options::{Common, Named, named};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measure the attachment of a pod to its requested networks, by plugins that query an API server
/// for them.
///
/// Run this command in the network namespace of the API server. Each directory's node has a link to
/// this namespace. The addresses are 10.99.<number>.1/24 in this namespace and 10.99.<number>.2/16
/// on the node, numbered from 1. The server's address must be in 10.99.0.0/24, on any interface.
/// The objects must exist: the pods, their networks, and the accounts of the plugins.
///
/// The floor is a separate row: one veth with address and default route.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Pod of a directory: `CNI_ARGS` of its calls
    #[arg(long, value_name = "NAME=ARGS")]
    pod: Vec<Named<String>>,
    /// Interfaces that a directory's pod must have besides eth0, separated by commas
    #[arg(long, value_name = "NAME=IFNAME,…")]
    interfaces: Vec<Named<String>>,
    /// A program that runs on a directory's node during all calls
    #[arg(long, value_name = "NAME=PROGRAM")]
    daemon: Vec<Named>,
    /// Pods that stay attached on a directory's node
    #[arg(long, value_name = "NAME=N")]
    beside: Vec<Named<usize>>,
    /// Conflist for one more ADD and DEL of a directory, with an API server that is `--round-trip`
    /// away
    #[arg(long, value_name = "NAME=FILE")]
    far: Vec<Named>,
    /// Round-trip time to the API server of `--far`
    #[arg(long, value_name = "MS", default_value_t = 400)]
    round_trip: u64,
    /// Audit log of the API server, to report the requests of these calls
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,
    /// ADDs (and DELs) to time for each directory
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub(crate) runs: usize,
    /// Rounds before the measured ones
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) warmup: usize,
    /// Fail if a budget is broken
    #[arg(long)]
    pub(crate) enforce: bool,
}

impl Args {
    /// Refuses arguments that clap cannot check.
    pub(crate) fn check(&self) -> Result<()> {
        if self.runs == 0 || self.round_trip == 0 {
            bail!("--runs and --round-trip start at 1");
        }
        if self.common.conflist.len() > 1 {
            bail!("pods measures one --conflist");
        }
        let texts = self.pod.iter().chain(&self.interfaces).map(|of| &of.name);
        let texts = texts.chain(self.beside.iter().map(|of| &of.name));
        let names = texts.chain(self.daemon.iter().chain(&self.far).map(|of| &of.name));
        self.common.check_names(names)?;
        self.common.check()
    }

    /// Returns `CNI_ARGS` of a directory's calls.
    pub(crate) fn cni_args(&self, name: &str) -> &str {
        named(&self.pod, name).map_or("", String::as_str)
    }

    pub(crate) fn interfaces(&self, name: &str) -> impl Iterator<Item = &str> {
        named(&self.interfaces, name)
            .into_iter()
            .flat_map(|names| names.split(','))
    }

    pub(crate) fn daemon(&self, name: &str) -> Option<&Path> {
        named(&self.daemon, name).map(PathBuf::as_path)
    }

    /// Returns the number of pods that stay attached.
    pub(crate) fn beside(&self, name: &str) -> usize {
        named(&self.beside, name).copied().unwrap_or_default()
    }

    pub(crate) fn far(&self, name: &str) -> Option<&Path> {
        named(&self.far, name).map(PathBuf::as_path)
    }

    pub(crate) fn round_trip(&self) -> Duration {
        Duration::from_millis(self.round_trip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Other};
    use clap::Parser as _;

    fn parsed(more: &[&str]) -> Args {
        let given = ["braid-bench", "pods", "--plugins=a=/a", "--conflist=x"];
        match Cli::try_parse_from(given.iter().chain(more)).unwrap().other {
            Some(Other::Pods(args)) => args,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn options_of_a_directory_apply_to_it_alone() {
        let args = parsed(&[
            "--beside=a=3",
            "--pod=a=K8S_POD_NAMESPACE=n;K8S_POD_NAME=p",
            "--interfaces=a=net1,net2",
        ]);
        assert_eq!(args.cni_args("a"), "K8S_POD_NAMESPACE=n;K8S_POD_NAME=p");
        assert_eq!((args.beside("a"), args.beside("b")), (3, 0));
        assert_eq!(args.interfaces("a").collect::<Vec<_>>(), ["net1", "net2"]);
        assert_eq!(
            (
                args.cni_args("b"),
                args.interfaces("b").count(),
                args.daemon("a")
            ),
            ("", 0, None)
        );
    }

    #[test]
    fn unknown_directories_and_numbers_that_measure_nothing_are_refused() {
        let refused = |more: &str| parsed(&[more]).check().unwrap_err().to_string();
        assert_eq!(refused("--daemon=b=/d"), "\"b\" is none of the --plugins");
        assert_eq!(refused("--runs=0"), "--runs and --round-trip start at 1");
        assert!(parsed(&["--far=a=/x"]).check().is_ok());
    }
}
