//! Command line of `braid-bench fabric`.

use crate::options::{Common, Named, named};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Maximum number of directories. Each has two nodes, and the last byte of an address is the
/// node's number.
const MOST_DIRECTORIES: usize = 100;

/// Measure TCP throughput and request latency between pods of two nodes, for several networks side
/// by side.
///
/// Each directory has two nodes, numbered from 1 over all directories. All nodes are on one bridge,
/// with the address 10.99.1.<number>/16 on their link `lan`. Run this command in the network
/// namespace of the API server, if the daemons need one. The server's address must be in
/// 10.99.0.0/24, on any interface.
///
/// The --conflist is read on the node, once it exists there. The node's own folders are /run,
/// `/var/lib/cni` and `/var/lib/braid`, which are empty at first. The run fails if the traffic of a
/// directory does not take its path, by the counters of `ip -s link`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    /// A program that runs on each node of a directory, with the node's number as its argument
    #[arg(long, value_name = "NAME=PROGRAM")]
    daemon: Vec<Named>,
    /// A file that must exist on a directory's node before a pod is attached
    #[arg(long, value_name = "NAME=FILE")]
    wait_for: Vec<Named>,
    /// Directories with traffic through a VXLAN link; of the others no packet may take one
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    vxlan: Vec<String>,
    /// Directories without budgets, such as a baseline's twin, which shows the noise of a run
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    unjudged: Vec<String>,
    /// MTU of the links between the nodes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub(crate) mtu: u32,
    /// Rounds; each measures every figure once, in turns
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) rounds: usize,
    /// Time for which throughput and then latency are measured
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seconds: u16,
    /// Fail if a budget is broken
    #[arg(long)]
    pub(crate) enforce: bool,
}

/// A directory of plugins with its files on a node.
pub(super) struct Plan<'a> {
    pub(super) name: &'a str,
    pub(super) dir: PathBuf,
    /// Conflist on the node.
    pub(super) conflist: &'a Path,
    /// Program that runs on each node.
    pub(super) daemon: Option<&'a Path>,
    /// File that must exist on the node before a pod is attached.
    pub(super) awaited: Option<&'a Path>,
    /// True if the traffic between the nodes goes through VXLAN.
    pub(super) is_vxlan: bool,
}

impl Args {
    /// Refuses arguments that clap cannot check.
    pub(crate) fn check(&self) -> Result<()> {
        if self.rounds == 0 || self.seconds == 0 {
            bail!("--rounds and --seconds start at 1");
        }
        // The first number is the minimum MTU of IPv6.
        if !(1280..=65535).contains(&self.mtu) {
            bail!("--mtu {} is outside 1280-65535", self.mtu);
        }
        if self.common.conflist.len() > 1 {
            bail!("fabric measures one --conflist");
        }
        if self.common.plugins.len() > MOST_DIRECTORIES {
            bail!("fabric measures at most {MOST_DIRECTORIES} --plugins");
        }
        let values = self.daemon.iter().chain(&self.wait_for);
        let names = values.map(|value| &value.name);
        let lists = self.vxlan.iter().chain(&self.unjudged);
        self.common.check_names(names.chain(lists))?;
        self.common.check()
    }

    /// Returns the directories in the order of their nodes.
    pub(super) fn plans(&self) -> Result<Vec<Plan<'_>>> {
        let network = self.common.conflist.first().context("no --conflist")?;
        let mut plans = Vec::new();
        for Named { name, value: path } in &self.common.plugins {
            let dir = path
                .canonicalize()
                .with_context(|| format!("plugins {name}: {}", path.display()))?;
            plans.push(Plan {
                name,
                dir,
                conflist: network.file(name),
                daemon: named(&self.daemon, name).map(PathBuf::as_path),
                awaited: named(&self.wait_for, name).map(PathBuf::as_path),
                is_vxlan: self.vxlan.contains(name),
            });
        }
        Ok(plans)
    }

    pub(super) fn unjudged(&self) -> &[String] {
        &self.unjudged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Other};
    use clap::Parser as _;

    fn parsed(more: &[&str]) -> Args {
        let given = [
            "braid-bench",
            "fabric",
            "--plugins=a=/",
            "--plugins=b=/",
            "--conflist=x,b=y",
        ];
        match Cli::try_parse_from(given.iter().chain(more)).unwrap().other {
            Some(Other::Fabric(args)) => args,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn files_and_path_belong_to_one_directory() {
        let args = parsed(&["--daemon=b=/d", "--wait-for=b=/f", "--vxlan=b"]);
        args.check().unwrap();
        let plans = args.plans().unwrap();
        let files = |plan: &Plan<'_>| {
            let given = [Some(plan.conflist), plan.daemon, plan.awaited];
            given.map(|file| file.map(Path::to_owned))
        };
        assert_eq!(files(&plans[0]), [Some("x".into()), None, None]);
        let [y, d, f] = ["y", "/d", "/f"].map(|file| Some(PathBuf::from(file)));
        assert_eq!(files(&plans[1]), [y, d, f]);
        assert!(!plans[0].is_vxlan && plans[1].is_vxlan);
    }

    #[test]
    fn unknown_directories_and_numbers_that_measure_nothing_are_refused() {
        let refused = |more: &str| parsed(&[more]).check().unwrap_err().to_string();
        assert_eq!(refused("--vxlan=c"), "\"c\" is none of the --plugins");
        assert_eq!(refused("--unjudged=c"), "\"c\" is none of the --plugins");
        assert_eq!(refused("--seconds=0"), "--rounds and --seconds start at 1");
        assert_eq!(refused("--mtu=576"), "--mtu 576 is outside 1280-65535");
        assert_eq!(refused("--conflist=z"), "fabric measures one --conflist");
    }
}
