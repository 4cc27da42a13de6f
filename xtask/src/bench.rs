//! `cargo xtask bench`: braid beside the reference plugins, judged by budgets.

mod cluster;
mod latency;
mod pods;

use crate::{build, dist, sh, tools};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHAPED: [&str; 4] = ["shaped-bridge", "shaped-ptp", "shaped-macvlan", "shaped-ipvlan"];

#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// Get the reference plugins and strace, and measure nothing
    #[arg(long)]
    setup: bool,
    /// ADDs and DELs to time for each directory in each setting
    #[arg(long, default_value_t = 60)]
    runs: usize,
    /// Measure what `bandwidth` does to traffic instead of attachment latency
    #[arg(long)]
    shaping: bool,
    /// Measure what the host ports of `portmap` do to traffic instead of attachment latency
    #[arg(long, conflicts_with = "shaping")]
    hostport: bool,
    /// Measure a pod with networks of an API server, beside Multus, instead of single networks
    #[arg(long, conflicts_with_all = ["shaping", "hostport"])]
    pods: bool,
    /// Measure sixty pods at once on a real Kubernetes instead of single attachments
    #[arg(long, conflicts_with_all = ["shaping", "hostport", "pods"])]
    cluster: bool,
    /// Fail when a budget is not kept
    #[arg(long)]
    enforce: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    sh::apt(&[("strace", "strace")])?;
    let reference = tools::reference()?;
    if args.setup {
        return Ok(());
    }
    let braid = build::installed(&dist::braid()?)?;
    if args.cluster {
        return judge(&cluster::budgets(&reference, &braid)?, args.enforce);
    }
    let out = sh::root().join("target/bench");
    fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
    // These budgets are the bench's own: bench/src/{shaping,hostport,pods}/budget.rs.
    let enforce = args.enforce.then_some("--enforce");
    if args.shaping {
        let mut shaping = bench(&[("ref", &reference), ("braid", &braid)], &out.join("shaping.json"), Some("shaping"))?;
        return sh::run(shaping.args(SHAPED.map(conflist)).args(enforce));
    }
    if args.hostport {
        // The package has ip6tables too, which the reference calls even where no address is one of IPv6.
        sh::apt(&[("iptables", "iptables"), ("nft", "nftables")])?;
        // Both backends of braid beside both of the reference.
        let plugins =
            [("ref-iptables", &*reference), ("ref-nftables", &reference), ("braid", &braid), ("braid-ebpf", &braid)];
        let mut hostport = bench(&plugins, &out.join("hostport.json"), Some("hostport"))?;
        let [iptables, ebpf] = ["hostport-iptables", "hostport-ebpf"].map(conflist_path);
        let own = format!("ref-iptables={},braid-ebpf={}", iptables.display(), ebpf.display());
        hostport.arg(format!("{},{own}", conflist("hostport"))).arg("--baseline=ref-iptables,ref-nftables");
        return sh::run(hostport.args(enforce));
    }
    if args.pods {
        return pods::run(args, &reference, &braid, &out);
    }
    // A node's is that of flannel's own DaemonSet.
    std::os::unix::fs::symlink("braid", braid.join("flannel")).context("link flannel's name")?;
    judge(&latency::budgets(args.runs, &reference, &braid, &out)?, args.enforce)
}

/// The bench with directories of plugins and a file for its figures.
fn bench(plugins: &[(&str, &Path)], json: &Path, verb: Option<&str>) -> Result<Command> {
    let mut bench = Command::new(build::package("braid-bench", "braid-bench")?);
    bench.args(verb).args(plugins.iter().map(|(name, dir)| format!("--plugins={name}={}", dir.display())));
    bench.arg("--json").arg(json);
    Ok(bench)
}

fn conflist_path(name: &str) -> PathBuf {
    sh::root().join(format!("bench/conflists/{name}.conflist"))
}

fn conflist(name: &str) -> String {
    format!("--conflist={}", conflist_path(name).display())
}

/// One promise about braid and its measured ratio.
#[derive(Debug, PartialEq)]
struct Budget {
    what: String,
    ratio: f64,
    at_most: f64,
}

fn judge(budgets: &[Budget], enforce: bool) -> Result<()> {
    eprintln!("\nbudgets (ratios):");
    for Budget { what, ratio, at_most } in budgets {
        let verdict = if ratio <= at_most { "pass" } else { "FAIL" };
        eprintln!("  {verdict}  {what}: {ratio:.3}, at most {at_most:.3}");
    }
    let failed = budgets.iter().filter(|budget| budget.ratio > budget.at_most).count();
    if enforce && failed > 0 {
        bail!("{failed} of {} budgets not kept", budgets.len());
    }
    Ok(())
}
