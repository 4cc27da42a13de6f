//! Command line of `cargo xtask bench`, and of the program `braid-bench` that it starts.

use crate::build;
use anyhow::Result;
use braid_testbed::sh;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// Install the reference plugins and strace, and measure nothing
    #[arg(long)]
    pub(super) setup: bool,
    /// ADDs and DELs to time for each directory in each setting
    #[arg(long, default_value_t = 60)]
    pub(super) runs: usize,
    /// Measure the effect of `bandwidth` on traffic instead of attachment latency
    #[arg(long)]
    pub(super) shaping: bool,
    /// Measure the effect of `portmap`'s host ports on traffic instead of attachment latency
    #[arg(long, conflicts_with = "shaping")]
    pub(super) hostport: bool,
    /// Measure pods with networks from an API server instead of single networks; compares braid
    /// with Multus
    #[arg(long, conflicts_with_all = ["shaping", "hostport"])]
    pub(super) pods: bool,
    /// Measure sixty pods at the same time on a real Kubernetes instead of single attachments
    #[arg(long, conflicts_with_all = ["shaping", "hostport", "pods"])]
    pub(super) cluster: bool,
    /// Measure the agent in a large cluster: memory, processor time, requests, seconds to readiness
    #[arg(long, conflicts_with_all = ["shaping", "hostport", "pods", "cluster"])]
    pub(super) agent: bool,
    /// Measure traffic between nodes instead of attachments; compares braid's agent with flannel
    #[arg(long, conflicts_with_all = ["shaping", "hostport", "pods", "cluster", "agent"])]
    pub(super) fabric: bool,
    /// MTU of the links between the nodes of --fabric
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub(super) mtu: u16,
    /// Rounds of --fabric
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(super) rounds: usize,
    /// Fail if a budget is broken
    #[arg(long)]
    pub(super) enforce: bool,
}

/// Builds `braid-bench` and returns its command. `plugins` are names with plugin directories,
/// `json` is the file for the results, and `verb` selects the measurement.
pub(super) fn bench(plugins: &[(&str, &Path)], json: &Path, verb: Option<&str>) -> Result<Command> {
    let mut bench = Command::new(build::package("braid-bench", "braid-bench")?);
    bench.args(verb).args(
        plugins
            .iter()
            .map(|(name, dir)| format!("--plugins={name}={}", dir.display())),
    );
    bench.arg("--json").arg(json);
    Ok(bench)
}

pub(super) fn conflist_path(name: &str) -> PathBuf {
    sh::root().join(format!("bench/conflists/{name}.conflist"))
}

pub(super) fn conflist(name: &str) -> String {
    format!("--conflist={}", conflist_path(name).display())
}
