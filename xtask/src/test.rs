//! `cargo xtask test`: all tests, the quick ones first. Each stage is a verb of this program or of cargo.
//!
//! ```text
//!  default  check ─ setup ─ unit, golden, netns ─ crash, e2e ──────────────┬─ cluster
//!           └─ Kubernetes is built beside them    └─ another kernel beside ┘
//!  --quick  without other kernels and the cluster       --all  every crash point, all kernels, both clusters
//! ```

mod background;
pub(crate) mod journal;

use crate::cluster::own;
use crate::{build, dist, sh, tools};
use anyhow::{Context, Result};
use background::Background;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The inner loop, under three minutes: without other kernels and the cluster, and with a few of the crash points
    #[arg(long)]
    quick: bool,
    /// Every crash point, Debian's kernels 6.1, 6.12 and newest, and both clusters
    #[arg(long, conflicts_with = "quick")]
    all: bool,
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
/// What each cluster must pass.
const CHECKS: &[&[&str]] = &[&["smoke"], &["limit-check"], &["hostport-check"], &["status-check"]];
/// Of how many crash points one is tried, and by `--quick`.
const CRASH_STEP: u64 = 8;
const QUICK_CRASH_STEP: u64 = 61;
/// Most tests wait for the kernel or for traffic: so many run for each processor at once.
const THREADS: usize = 2;
/// Minutes after which a stage is ended: each needs a third of it on two slow processors.
const LIMIT_MIN: u32 = 30;
/// The same for `--all`.
const LIMIT_ALL_MIN: u32 = 150;

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut run = Run::begin(args)?;
    let ended = run.all();
    run.tell();
    ended?;
    println!("all passed in {} s", run.start.elapsed().as_secs());
    Ok(())
}

/// One run, with what it has noted so far.
struct Run<'a> {
    args: &'a Args,
    start: Instant,
    stages: Vec<(&'static str, u64)>,
    journal: PathBuf,
}

impl<'a> Run<'a> {
    fn begin(args: &'a Args) -> Result<Self> {
        let journal = background::folder()?.join("journal");
        journal::begin(&journal)?;
        Ok(Self { args, start: Instant::now(), stages: Vec::new(), journal })
    }

    fn all(&mut self) -> Result<()> {
        let (quick, all) = (self.args.quick, self.args.all);
        let limit = if all { LIMIT_ALL_MIN } else { LIMIT_MIN };
        let kubernetes = (!quick).then(|| Background::start("Kubernetes", limit, &["cluster", "build"])).transpose()?;
        self.stage("tools", || sh::apt(TOOLS))?;
        self.stage("check", || xtask(&["check"]))?;
        self.stage("reference plugins", || xtask(&["bench", "--setup"]))?;
        self.stage("cnitool and podman", || tools::cnitool().and_then(|_| tools::podman()))?;
        self.stage("build", || sh::run(&mut sh::cmd("cargo", ["test", "--workspace", "--no-run"])))?;
        self.tests(
            "unit and netns",
            &["--workspace", "--lib", "--bins", "--test", "golden", "--test", "netns"],
            limit,
        )?;
        let kernels = (!quick).then(|| self.other_kernels(limit)).transpose()?;
        self.tests("crash", &["--package", "braid-tests", "--test", "crash"], limit)?;
        self.tests("e2e", &["--package", "braid-tests", "--test", "e2e"], limit)?;
        for background in [kubernetes, kernels].into_iter().flatten() {
            self.stages.push(background.join()?);
        }
        if !quick {
            self.stage("cluster", || cluster(all))?;
        }
        Ok(())
    }

    fn stage(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("=== {name}");
        let start = Instant::now();
        work().with_context(|| format!("stage {name:?}"))?;
        self.stages.push((name, start.elapsed().as_secs()));
        Ok(())
    }

    /// Tests on this machine's kernel.
    fn tests(&mut self, name: &'static str, targets: &[&str], limit_min: u32) -> Result<()> {
        let mut test =
            sh::cmd("timeout", ["--foreground", "-k10", &format!("{limit_min}m"), "cargo", "test", "--no-fail-fast"]);
        test.args(targets).env("BRAID_CNITOOL", tools::cnitool()?).env("BRAID_TEST_JOURNAL", &self.journal);
        let processors = std::thread::available_parallelism().context("count the processors")?;
        test.env("RUST_TEST_THREADS", (processors.get() * THREADS).to_string());
        let step = match self.args {
            Args { all: true, .. } => 1,
            Args { quick: true, .. } => QUICK_CRASH_STEP,
            _ => CRASH_STEP,
        };
        let offset = commit_number() % step;
        if name == "crash" {
            println!("every {step}th crash point: BRAID_CRASH_STEP={step} BRAID_CRASH_OFFSET={offset}");
        }
        test.env("BRAID_CRASH_STEP", step.to_string()).env("BRAID_CRASH_OFFSET", offset.to_string());
        self.stage(name, || sh::run(&mut test))
    }

    /// What this machine's kernel lacks, on the newest one; with `--all`, what each kernel does in its own way, on three.
    fn other_kernels(&self, limit_min: u32) -> Result<Background> {
        let minutes = limit_min.to_string();
        let journal = self.journal.to_string_lossy();
        let common = ["vm", "--timeout", &minutes];
        let wanted: &[&str] = if self.args.all { &["--all", "--lacking"] } else { &["newest", "--skipped", &journal] };
        Background::start("other kernels", limit_min + 1, &[&common, wanted].concat())
    }

    /// Says what took how long.
    fn tell(&self) {
        for (name, seconds) in &self.stages {
            println!("{name:18} passed {seconds:>5} s");
        }
        let slowest = journal::slowest(&self.journal).unwrap_or_default();
        if !slowest.is_empty() {
            println!("the slowest tests:\n{}", slowest.join("\n"));
        }
    }
}

/// Another number for each commit, so that the crash points tried differ: 0 outside a checkout.
fn commit_number() -> u64 {
    let commit = sh::read(&mut sh::cmd("git", ["rev-parse", "HEAD"])).unwrap_or_default();
    commit.get(..8).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

fn xtask(args: &[&str]) -> Result<()> {
    sh::run(&mut sh::xtask(args.iter().copied())?)
}

/// A real Kubernetes whose pods are attached by the drop-in names in an unchanged conflist, where the `DaemonSet` has
/// brought braid to nodes with the reference plugins; with `all`, first one by type `braid`.
fn cluster(all: bool) -> Result<()> {
    let plugins = build::linked(&dist::braid_or_glibc()?)?;
    let pass = |plugins: &Path, conflist, checks: &[&[&str]]| {
        let nodes = own::Nodes { plugins, conflist, kube_proxy: true };
        own::with(nodes, || checks.iter().try_for_each(|verb| xtask(&[&["cluster"], *verb].concat())))
    };
    if all {
        pass(&plugins, "braid", CHECKS)?;
    }
    let deployed = [&[&["deploy"][..]], CHECKS, &[&["deploy", "--remove"]]].concat();
    pass(&sh::cache().join("reference"), "reference", &deployed)
}
