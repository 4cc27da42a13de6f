//! `cargo xtask bench`: measures braid and the reference plugins, and compares the ratios with
//! budgets.

mod agent;
mod api;
mod budget;
mod cluster;
mod command;
mod fabric;
mod latency;
mod pods;

use crate::{build, dist};
use anyhow::{Context, Result};
use braid_testbed::{sh, tools};
use budget::judge;
pub(crate) use command::Args;
use command::{bench, conflist, conflist_path};
use std::fs;
use std::path::PathBuf;

const SHAPED: [&str; 4] = [
    "shaped-bridge",
    "shaped-ptp",
    "shaped-macvlan",
    "shaped-ipvlan",
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.agent {
        return agent::run(&dist::unordered()?);
    }
    sh::apt(&[("strace", "strace")])?;
    let reference = tools::reference()?;
    if args.setup {
        return Ok(());
    }
    if args.fabric {
        let braid = build::installed(&dist::unordered()?)?;
        return fabric::run(args, &reference, &braid, &out()?);
    }
    if args.cluster {
        return judge(&cluster::budgets(&reference)?, args.enforce);
    }
    let braid = build::installed(&dist::braid()?)?;
    let out = out()?;
    // The budgets are in bench/src/{shaping,hostport,pods,fabric}/budget.rs.
    let enforce = args.enforce.then_some("--enforce");
    if args.shaping {
        let mut shaping = bench(
            &[("ref", &reference), ("braid", &braid)],
            &out.join("shaping.json"),
            Some("shaping"),
        )?;
        return sh::run(shaping.args(SHAPED.map(conflist)).args(enforce));
    }
    if args.hostport {
        // The package also contains ip6tables, which the reference calls even without IPv6
        // addresses.
        sh::apt(&[("iptables", "iptables"), ("nft", "nftables")])?;
        // Both backends of braid, and both of the reference.
        let plugins = [
            ("ref-iptables", &*reference),
            ("ref-nftables", &reference),
            ("braid", &braid),
            ("braid-ebpf", &braid),
        ];
        let mut hostport = bench(&plugins, &out.join("hostport.json"), Some("hostport"))?;
        let [iptables, ebpf] = ["hostport-iptables", "hostport-ebpf"].map(conflist_path);
        let own = format!(
            "ref-iptables={},braid-ebpf={}",
            iptables.display(),
            ebpf.display()
        );
        hostport
            .arg(format!("{},{own}", conflist("hostport")))
            .arg("--baseline=ref-iptables,ref-nftables");
        return sh::run(hostport.args(enforce));
    }
    if args.pods {
        return pods::run(args, &reference, &braid, &out);
    }
    // On a node, this name belongs to flannel's own DaemonSet.
    std::os::unix::fs::symlink("braid", braid.join("flannel")).context("link flannel's name")?;
    judge(
        &latency::budgets(args.runs, &reference, &braid, &out)?,
        args.enforce,
    )
}

/// Creates the folder for results and returns its path.
fn out() -> Result<PathBuf> {
    let out = sh::root().join("target/bench");
    fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
    Ok(out)
}
