//! The command line.

use crate::conflist::Conflist;
use crate::{hostport, pods, shaping};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Measure how long CNI plugins take to attach and detach a pod, several directories of plugins side by side and beside
/// the kernel's own floor.
///
/// Each directory gets a node of its own: network and mount namespace, empty /run and /var/lib/cni, an uplink eth0. It
/// works on pods that are network namespaces. The directories take turns in one run. Nothing on the host changes, and
/// nothing is left when the run ends or is killed. Needs root.
///
/// The floor is a row of its own: a veth into the pod with bridge, address and default route. This process makes and deletes
/// it by netlink.
#[derive(Parser)]
#[command(name = "braid-bench", version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) other: Option<Other>,
    #[command(flatten)]
    pub(crate) common: Common,
    /// ADDs (and DELs) to time for each directory in each setting
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) runs: usize,
    /// Rounds before those that count
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) warmup: usize,
    /// Number of pods that are attached at once; several values make several settings
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1")]
    pub(crate) concurrency: Vec<usize>,
    /// Number of addresses that other containers already hold; several values make several settings
    ///
    /// N lease files are put into `<dataDir>/<network>`, on the node's own tmpfs, for the first N free addresses of the first
    /// range. They are as the reference host-local writes them: `<id>\r\n<ifname>`, mode 0600, and `last_reserved_ip.0`. The range must hold them, so give the network a /16 for 10,000.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    pub(crate) leases: Vec<usize>,
    /// Number of ports of the host that already lead to other pods, a hundred to each; several values make several settings
    ///
    /// The list must have a plugin with the capability `portMappings`. The ports are of TCP, from 10000 on.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    pub(crate) ports: Vec<u16>,
    /// Number of pods that are attached before a run and stay, as on a node that is in use
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) beside: usize,
    /// Count system calls, forks and execs in one more ADD and DEL of each setting, at the first concurrency
    #[arg(long)]
    pub(crate) syscalls: bool,
}

/// Other measurements than attachment latency.
#[derive(Subcommand)]
pub(crate) enum Other {
    /// Measure what `bandwidth` plugins do to traffic
    Shaping(shaping::cli::Args),
    /// Measure what the host ports of `portmap` plugins do to traffic
    Hostport(hostport::cli::Args),
    /// Measure attachment latency of plugins that ask an API server for a pod's networks
    Pods(pods::cli::Args),
}

/// Options of all measurements.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// A directory of plugins and how to call it in the report; repeat to compare
    #[arg(long, value_name = "NAME=DIR", required = true)]
    pub(crate) plugins: Vec<Named>,
    /// A network to attach to; repeat for several. `NAME=FILE` after a comma gives one directory a list of its own
    #[arg(long, value_name = "FILE[,NAME=FILE]…", required = true)]
    pub(crate) conflist: Vec<Network>,
    /// The directories of which the better one in each figure is what the others are compared with; the first one unless
    /// given
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    baseline: Vec<String>,
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// A directory of plugins with the list that it is called by.
pub(crate) struct Contender<'a> {
    pub(crate) name: &'a str,
    pub(crate) dir: PathBuf,
    pub(crate) conflist: Conflist,
}

/// `NAME=VALUE`; the value is a path unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named<T = PathBuf> {
    pub(crate) name: String,
    pub(crate) value: T,
}

/// The conflist of all directories, and those that some use instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Network {
    common: PathBuf,
    own: Vec<Named>,
}

impl Network {
    /// The file for the plugins called `name`.
    pub(crate) fn file(&self, name: &str) -> &Path {
        self.own.iter().find(|own| own.name == name).map_or(&self.common, |own| &own.value)
    }

    /// The network's name in reports: the common file's name without its ending.
    pub(crate) fn label(&self) -> String {
        self.common.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }
}

impl Cli {
    /// Refuses what clap can't see: names that don't exist, numbers that measure nothing.
    pub(crate) fn check(&self) -> Result<()> {
        if self.runs == 0 || self.concurrency.contains(&0) {
            bail!("--runs and --concurrency start at 1");
        }
        self.common.check()
    }
}

impl Common {
    /// Refuses conflists and baselines of no directory.
    pub(crate) fn check(&self) -> Result<()> {
        let own = self.conflist.iter().flat_map(|network| &network.own).map(|own| &own.name);
        self.check_names(own.chain(&self.baseline))
    }

    /// Refuses a name that stands for no directory.
    pub(crate) fn check_names<'a>(&self, mut names: impl Iterator<Item = &'a String>) -> Result<()> {
        match names.find(|name| self.plugins.iter().all(|plugins| plugins.name != **name)) {
            Some(unknown) => bail!("\"{unknown}\" is none of the --plugins"),
            None => Ok(()),
        }
    }

    /// Names of the directories that the others are compared with.
    pub(crate) fn baselines(&self) -> Vec<String> {
        let first = self.plugins.first().filter(|_| self.baseline.is_empty());
        self.baseline.iter().chain(first.map(|first| &first.name)).cloned().collect()
    }

    /// All directories, for one network.
    pub(crate) fn contenders<'a>(&'a self, network: &Network) -> Result<Vec<Contender<'a>>> {
        let contender = |Named { name, value: path }: &'a Named| {
            let dir = path.canonicalize().with_context(|| format!("plugins {name}: {}", path.display()))?;
            Ok(Contender { name, dir, conflist: Conflist::read(network.file(name))? })
        };
        self.plugins.iter().map(contender).collect()
    }
}

/// The word of a value on the command line.
pub(crate) fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl<T: From<String>> FromStr for Named<T> {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, value) = text.split_once('=').with_context(|| format!("\"{text}\" is not NAME=VALUE"))?;
        if name.is_empty() || name == crate::run::FLOOR {
            bail!("\"{name}\" can't be a name here");
        }
        Ok(Named { name: name.to_owned(), value: value.to_owned().into() })
    }
}

impl FromStr for Network {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(',');
        let common = parts.next().unwrap_or_default().into();
        Ok(Network { common, own: parts.map(Named::from_str).collect::<Result<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_may_have_a_conflist_of_its_own() {
        let network: Network = "dir/chain.conflist,braid=one.conflist".parse().unwrap();
        assert_eq!(network.file("ref"), Path::new("dir/chain.conflist"));
        assert_eq!(network.file("braid"), Path::new("one.conflist"));
        assert_eq!(network.label(), "chain");
    }

    #[test]
    fn plugins_need_a_name_that_is_not_the_floor() {
        let refused = |text: &str| Named::<PathBuf>::from_str(text).unwrap_err().to_string();
        assert_eq!(refused("/opt/cni/bin"), "\"/opt/cni/bin\" is not NAME=VALUE");
        assert_eq!(refused("floor=/opt/cni/bin"), "\"floor\" can't be a name here");
    }

    #[test]
    fn baselines_must_be_measured_too_and_the_first_directory_is_one_by_itself() {
        let cli = |more: &[&str]| {
            let given = ["braid-bench", "--plugins=a=/a", "--plugins=b=/b", "--conflist=x"];
            Cli::try_parse_from(given.iter().chain(more)).unwrap()
        };
        assert_eq!(cli(&[]).common.baselines(), ["a"]);
        assert_eq!(cli(&["--baseline=b,a"]).common.baselines(), ["b", "a"]);
        assert!(cli(&["--baseline=b"]).check().is_ok());
        assert_eq!(cli(&["--baseline=b,c"]).check().unwrap_err().to_string(), "\"c\" is none of the --plugins");
    }
}
