//! `cargo xtask test`: all tests, the quick ones first. Each stage is a verb of this program or of cargo.

use crate::cluster::own;
use crate::{build, dist, sh, tools};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The inner loop, under three minutes: without other kernels and the cluster, and with a part of the crash points
    #[arg(long)]
    quick: bool,
}

/// What the tests call: program and Debian package.
const TOOLS: &[(&str, &str)] = &[
    ("bpftool", "bpftool"),
    ("dbus-daemon", "dbus-daemon"),
    ("firewalld", "firewalld"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("ping", "iputils-ping"),
    ("iptables", "iptables"),
    ("python3", "python3"),
    ("strace", "strace"),
    ("sysctl", "procps"),
    ("unshare", "util-linux"),
];
/// The kernels for what the machine's own may lack: ipvlan, bridge VLAN filtering, the upper rungs of shaping.
const KERNELS: [&str; 2] = ["6.12", "6.1"];
/// What each cluster must pass.
const CHECKS: &[&[&str]] = &[&["smoke"], &["limit-check"], &["hostport-check"], &["status-check"]];
/// Of the crash points, `--quick` tries every nineteenth.
const QUICK_CRASH_STEP: &str = "19";
/// Most tests wait for the kernel or for traffic: `--quick` runs so many for each processor at once.
const QUICK_THREADS: usize = 2;

pub(crate) fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    let mut stages = Vec::new();
    sh::apt(TOOLS)?;
    stage(&mut stages, "check", || xtask(&["check"]))?;
    stage(&mut stages, "reference plugins", || xtask(&["bench", "--setup"]))?;
    stage(&mut stages, "cnitool and podman", || tools::cnitool().and_then(|_| tools::podman()))?;
    stage(&mut stages, "cargo test", || cargo_test(args.quick))?;
    if !args.quick {
        stage(&mut stages, "other kernels", || xtask(&["vm", KERNELS[0], KERNELS[1], "--lacking"]))?;
        stage(&mut stages, "cluster", cluster)?;
    }
    for (name, seconds) in stages {
        println!("{name:18} passed {seconds:>5} s");
    }
    println!("all passed in {} s", start.elapsed().as_secs());
    Ok(())
}

fn stage(stages: &mut Vec<(&'static str, u64)>, name: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("=== {name}");
    let start = Instant::now();
    work().with_context(|| format!("stage {name:?}"))?;
    stages.push((name, start.elapsed().as_secs()));
    Ok(())
}

fn xtask(args: &[&str]) -> Result<()> {
    sh::run(&mut sh::xtask(args.iter().copied())?)
}

/// Unit, golden, network namespace, crash and end-to-end tests on this machine's kernel.
fn cargo_test(quick: bool) -> Result<()> {
    sh::run(&mut sh::cmd("cargo", ["build", "--package", "braid"]))?;
    let mut test = sh::cmd("cargo", ["test", "--workspace", "--no-fail-fast"]);
    test.env("BRAID_CNITOOL", tools::cnitool()?);
    if quick {
        let processors = std::thread::available_parallelism().context("count the processors")?;
        test.env("RUST_TEST_THREADS", (processors.get() * QUICK_THREADS).to_string());
        test.env("BRAID_CRASH_STEP", QUICK_CRASH_STEP);
    }
    sh::run(&mut test)
}

/// A real Kubernetes, twice: all pods by type `braid`, then by the drop-in names in an unchanged conflist, where the
/// `DaemonSet` has brought braid to nodes with the reference plugins.
fn cluster() -> Result<()> {
    let plugins = build::linked(&dist::braid_or_glibc()?)?;
    xtask(&["cluster", "build"])?;
    let pass = |plugins: &Path, conflist, checks: &[&[&str]]| {
        let nodes = own::Nodes { plugins, conflist, kube_proxy: true };
        own::with(nodes, || checks.iter().try_for_each(|verb| xtask(&[&["cluster"], *verb].concat())))
    };
    pass(&plugins, "braid", CHECKS)?;
    let deployed = [&[&["deploy"][..]], CHECKS, &[&["deploy", "--remove"]]].concat();
    pass(&sh::cache().join("reference"), "reference", &deployed)
}
