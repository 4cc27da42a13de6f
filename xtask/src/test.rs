//! `cargo xtask test`: runs all tests in stages. A stage is a process with a time limit. The stages
//! of a lane run one after the other, and the lanes run side by side:
//!
//! ```text
//!  foreground tools ─ check ─ build ─ units ─ netns (1, 2) ─ crash ─ e2e ─ chart (1) ─ api (3) ─ cluster (1, 2, 3)
//!  background release (2) ─ arm64 ─ image (with --all)
//!  background reference (1) ─ kubernetes (3)
//!  background kernels (after netns, with --all after cluster, 2)
//! ```
//!
//! A number connects a background stage with the stages that need it. The tests mostly wait, and
//! the background lanes use the remaining processor time. Tests that start braid use the shipped
//! build, for musl. `--quick` is for use while editing: it uses the development build, leaves out
//! the API server, the cluster and other kernels, and runs only a part of the crash tests and of
//! the tests in network namespaces.

mod arm64;
mod command;
pub(crate) mod journal;
mod lane;
pub(crate) mod sample;
mod stage;

use crate::cluster::own;
use crate::vm::Part;
use crate::{build, dist, manifests, verb};
use anyhow::{Context, Result};
use braid_testbed::{sh, tools};
pub(crate) use command::Args;
use lane::Lane;
use stage::Stage;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Programs that the tests run, and their Debian packages.
const TOOLS: &[(&str, &str)] = &[
    ("bpftool", "bpftool"),
    ("dbus-daemon", "dbus-daemon"),
    ("dnsmasq", "dnsmasq-base"),
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
/// Commands of `cargo xtask cluster` that every cluster must pass.
const CHECKS: &[&[&str]] = &[
    &["smoke"],
    &["limit-check"],
    &["hostport-check"],
    &["status-check"],
];
/// Name of the check that runs last, on nodes where the `DaemonSet` has installed braid. Without
/// `--all`, this check runs with the option [`BRIEF`].
const NETWORKS_CHECK: &str = "networks-check";
/// Name of the check of running pods. Without `--all`, this check runs with the option [`BRIEF`].
const HOTPLUG_CHECK: &str = "hotplug-check";
/// Checks that take minutes.
const LONG_CHECKS: &[&[&str]] = &[
    SETTINGS_CHECK,
    &[HOTPLUG_CHECK],
    &["repair-check"],
    &["churn-check"],
    &["chaos-check"],
];
/// Check of the agent's configuration, for uplinks of any MTU.
const SETTINGS_CHECK: &[&str] = &["settings-check"];
/// Check on nodes where braid is installed under the plugin names, without an agent.
const MULTUS_CHECK: &[&str] = &["multus-check"];
/// Check of `kubectl braid`, on nodes with the agent.
const VIEW_CHECK: &[&str] = &["view-check"];
const IPAM_CHECK: &str = "ipam-check";
const CLAIMS_CHECK: &str = "claims-check";
const BRIEF: &str = "--brief";
/// One in this many crash points is tried. With `--quick`, the number is [`QUICK_CRASH_STEP`].
const CRASH_STEP: u64 = 16;
const QUICK_CRASH_STEP: u64 = 61;
/// With `--quick`, one in this many network namespace tests runs, and one in this many crash tests.
const QUICK_STEP: usize = 4;
/// One in this many tests that need another kernel is run. Under emulation, a test takes many times
/// as long.
const KERNEL_STEP: u64 = 10;
/// Random orders of calls of the IPAM `whereabouts`: about a minute.
const IPAM_TRIALS: &str = "800";
/// Prefix of the names of crash tests that need an API server.
const CRASH_OF_PODS: &str = "pod_with_";
/// Concurrent tests per processor. Most of them wait for the kernel or for traffic.
const THREADS: usize = 2;
/// Time limit of a run. CI ends a run after 90 minutes without reporting its stage.
const LIMIT: Duration = Duration::from_mins(80);
/// Stages that the tests on this machine's kernel need. With `--quick` they are [`READY_QUICK`],
/// without a release build.
const READY: &[&str] = &["tools", "build", "reference", RELEASE];
const READY_QUICK: &[&str] = &["tools", "build", "reference"];
/// Name of the stage that builds the shipped binary.
const RELEASE: &str = "release";
/// Factor of all time limits with `--all`.
const ALL: u32 = 5;

pub(crate) fn run(args: &Args) -> Result<()> {
    let lanes = lanes(args);
    if let Some(name) = &args.stage {
        let stages: Vec<&Stage> = lanes.iter().flat_map(|lane| &lane.stages).collect();
        let stage = stages.into_iter().find(|stage| stage.name == name);
        return (stage.with_context(|| format!("no stage {name:?}"))?.work)(args);
    }
    journal::begin(&journal()?)?;
    let option = [(args.quick, "--quick"), (args.all, "--all")]
        .into_iter()
        .find_map(|(is_set, name)| is_set.then_some(name));
    let limit = if args.all { LIMIT * ALL } else { LIMIT };
    let ended = lane::run(&lanes, limit, |stage, limit, is_behind| {
        stage.run(option, limit, is_behind)
    });
    println!(
        "\nthe slowest tests, in their sandboxes:\n{}",
        journal::slowest(&journal()?)?.join("\n")
    );
    for panic in journal::panics(&journal()?)? {
        println!("panicked: {panic}");
    }
    lane::tell(&ended)
}

fn lanes(args: &Args) -> Vec<Lane> {
    let stage = |name, needs, minutes, work| {
        let limit = Duration::from_mins(minutes);
        Stage {
            name,
            needs,
            after: None,
            limit: if args.all { limit * ALL } else { limit },
            work,
        }
    };
    let ready = if args.quick { READY_QUICK } else { READY };
    // Without an API server, a part of its tests is skipped.
    let chart_needs: &[&str] = if args.quick {
        &["build", "reference"]
    } else {
        &["build", "reference", RELEASE, "kubernetes"]
    };
    let mut front = vec![
        stage("tools", &[], 10, |_| {
            sh::apt(TOOLS).and_then(|()| tools::podman())
        }),
        stage("check", &[], 25, |_| xtask(&["check"])),
        stage("build", &[], 25, build_tests),
        stage("units", &["build"], 10, units),
        stage("netns", ready, 20, netns),
        stage("crash", ready, 15, crash),
        stage("e2e", ready, 10, e2e),
        stage("chart", chart_needs, 10, chart),
    ];
    let mut behind = vec![vec![stage("reference", &[], 15, |_| reference())]];
    if !args.quick {
        front.push(stage(
            "api",
            &["tools", "build", RELEASE, "kubernetes"],
            20,
            api,
        ));
        front.push(stage(
            "cluster",
            &["kubernetes", RELEASE, "reference"],
            20,
            cluster,
        ));
        behind[0].push(stage("kubernetes", &[], 40, |_| kubernetes()));
        // The tests in the foreground wait for this stage.
        behind.push(vec![stage(RELEASE, &[], 40, |_| {
            dist::unordered().map(drop)
        })]);
        behind[1].push(stage("arm64", &[], 60, |_| arm64::run()));
        if args.all {
            behind[1].push(stage("image", &[RELEASE], 60, |_| {
                xtask(&["image", "--unordered"])
            }));
        }
        // The tests on this machine's kernel record the tests that this stage has to run. With
        // `--all` the stage needs the whole machine.
        let after = Some(if args.all { "cluster" } else { "netns" });
        behind.push(vec![Stage {
            after,
            ..stage("kernels", &["build", RELEASE], 30, other_kernels)
        }]);
    }
    joined(front, behind)
}

/// Returns the lanes, the background lanes first.
fn joined(front: Vec<Stage>, behind: Vec<Vec<Stage>>) -> Vec<Lane> {
    let mut lanes = Vec::new();
    for stages in behind {
        lanes.push(Lane {
            stages,
            is_behind: true,
        });
    }
    lanes.push(Lane {
        stages: front,
        is_behind: false,
    });
    lanes
}

fn xtask(args: &[&str]) -> Result<()> {
    sh::run(&mut verb::command(args.iter().copied())?)
}

fn journal() -> Result<PathBuf> {
    Ok(stage::folder()?.join("journal"))
}

fn build_tests(args: &Args) -> Result<()> {
    if args.quick {
        sh::run(&mut sh::cmd(
            "cargo",
            ["build", "--package", "braid", "--package", "braid-agent"],
        ))?;
    }
    sh::run(&mut sh::cmd("cargo", ["test", "--workspace", "--no-run"]))
}

/// Builds Kubernetes for the tests with an API server. Builds Multus for the tests in which braid
/// takes over pods from Multus, promtool for the tests of metrics, and Whereabouts for the tests of
/// its pools.
fn kubernetes() -> Result<()> {
    xtask(&["cluster", "build"])?;
    tools::promtool()?;
    tools::whereabouts()?;
    tools::multus().map(drop)
}

fn reference() -> Result<()> {
    tools::reference()?;
    tools::helm()?;
    tools::cnitool().map(drop)
}

/// Compares the manifests with the chart, and runs the tests of the chart.
fn chart(args: &Args) -> Result<()> {
    manifests::check()?;
    tests_of_braid(args, &["--package", "braid-tests", "--test", "chart"])
}

/// Runs the tests that do not start braid.
fn units(args: &Args) -> Result<()> {
    let mut units = tests(
        args,
        &["--workspace", "--lib", "--bins", "--test", "golden"],
    )?;
    if !args.quick {
        units.env("BRAID_IPAM_TRIALS", IPAM_TRIALS);
    }
    sh::run(&mut units)
}

fn netns(args: &Args) -> Result<()> {
    if args.quick {
        return part(args, "netns");
    }
    tests_of_braid(args, &["--package", "braid-tests", "--test", "netns"])
}

fn e2e(args: &Args) -> Result<()> {
    tests_of_braid(args, &["--package", "braid-tests", "--test", "e2e"])
}

/// Runs a sample of the crash points. Each commit has a different sample.
fn crash(args: &Args) -> Result<()> {
    let (step, offset) = crash_points(args);
    println!(
        "one in {step} crash points, from number {offset} on: BRAID_CRASH_STEP={step} BRAID_CRASH_OFFSET={offset}"
    );
    if args.quick {
        return part(args, "crash");
    }
    tests_of_braid(
        args,
        &[
            "--package",
            "braid-tests",
            "--test",
            "crash",
            "--",
            "--skip",
            CRASH_OF_PODS,
        ],
    )
}

/// Runs a part of the tests of `target`. Each commit has a different part.
fn part(args: &Args, target: &str) -> Result<()> {
    let of_target = ["--package", "braid-tests", "--test", target, "--"];
    let list = sh::read(
        sh::cmd("cargo", ["test"])
            .args(of_target)
            .args(["--list", "--format", "terse"]),
    )?;
    let mut names = Vec::new();
    for line in list.lines() {
        if let Some(name) = line.strip_suffix(": test")
            && !name.starts_with(CRASH_OF_PODS)
        {
            names.push(name.to_owned());
        }
    }
    let offset =
        usize::try_from(sample::commit_number()).context("the number of a commit")? % QUICK_STEP;
    let part = Part {
        offset,
        step: QUICK_STEP,
    }
    .of(names);
    println!(
        "{} tests of {target}: one in {QUICK_STEP}, from number {offset} on",
        part.len()
    );
    let names: Vec<&str> = part.iter().map(String::as_str).collect();
    tests_of_braid(args, &[&of_target[..], &["--exact"], &names].concat())
}

/// Runs all tests with an API server.
fn api(args: &Args) -> Result<()> {
    tests_of_braid(args, &["--package", "braid-tests", "--test", "api"])?;
    tests_of_braid(
        args,
        &[
            "--package",
            "braid-tests",
            "--test",
            "crash",
            "--",
            CRASH_OF_PODS,
        ],
    )
}

/// Runs tests that start braid on this machine's kernel. They use the shipped build, or the
/// development build with `--quick`.
fn tests_of_braid(args: &Args, targets: &[&str]) -> Result<()> {
    let mut test = tests(args, targets)?;
    test.env("BRAID_CNITOOL", tools::cnitool()?);
    if !args.quick {
        let braid = dist::unordered()?;
        println!("the braid under test: {}", braid.display());
        test.env("BRAID_BIN", braid);
    }
    sh::run(&mut test)
}

/// Returns the command that runs tests on this machine's kernel.
fn tests(args: &Args, targets: &[&str]) -> Result<Command> {
    let processors = std::thread::available_parallelism().context("count the processors")?;
    let (step, offset) = crash_points(args);
    let mut test = sh::cmd("cargo", ["test", "--no-fail-fast"]);
    test.args(targets).env(journal::VARIABLE, journal()?);
    test.env(
        "RUST_TEST_THREADS",
        (processors.get() * THREADS).to_string(),
    );
    test.env("BRAID_CRASH_STEP", step.to_string())
        .env("BRAID_CRASH_OFFSET", offset.to_string());
    Ok(test)
}

/// Returns the step between the crash points to try, and the number of the first one.
fn crash_points(args: &Args) -> (u64, u64) {
    let step = match args {
        Args { all: true, .. } => 1,
        Args { quick: true, .. } => QUICK_CRASH_STEP,
        _ => CRASH_STEP,
    };
    (step, sample::commit_number() % step)
}

/// Runs tests on other kernels. Without `--all`, this is a sample of the tests for which this
/// machine's kernel lacks a feature. The sample runs on the newest kernel and differs between
/// commits. With `--all`, all tests that depend on the kernel run on three kernels.
fn other_kernels(args: &Args) -> Result<()> {
    let journal = journal()?;
    let mut vm = if args.all {
        verb::command(["vm", "--all", "--lacking", "--timeout", "150"])?
    } else {
        let part = format!("{}/{KERNEL_STEP}", sample::commit_number() % KERNEL_STEP);
        println!("tests {part} of those left to another kernel: --part {part}");
        verb::command([
            "vm",
            "newest",
            "--skipped",
            &journal.to_string_lossy(),
            "--part",
            &part,
        ])?
    };
    sh::run(vm.env(journal::VARIABLE, &journal))
}

/// Runs checks on a real Kubernetes. Its nodes are machines without any network for pods, until
/// deploy/braid.yaml makes it. With `--all`, the checks also run on nodes with a configuration of
/// type `braid`, on nodes with another network, and with braid under the names of its plugins.
fn cluster(args: &Args) -> Result<()> {
    let pass = |nodes: own::Nodes<'_>, checks: &[&[&str]]| {
        own::with(nodes, || {
            checks
                .iter()
                .try_for_each(|verb| xtask(&[&["cluster"], *verb].concat()))
        })
    };
    if args.all {
        let installed = build::installed(&dist::unordered()?)?;
        let reference = sh::cache().join("reference");
        pass(with(&installed, "braid"), CHECKS)?;
        pass(with(&installed, "reference"), &[MULTUS_CHECK])?;
        let taken_over = [&[&["deploy-check"][..]], &[&["deploy"][..]], CHECKS].concat();
        pass(with(&reference, "reference"), &taken_over)?;
        pass(with(&reference, "reference"), &[&["upgrade-check"]])?;
        moves(&reference, pass)?;
        pass(own::Nodes::Wide { mtu: 1500 }, &[&["chart-check"]])?;
        let jumbo = own::Nodes::Wide { mtu: 9000 };
        pass(jumbo, &[&["deploy"], SETTINGS_CHECK])?;
    }
    let networks = if args.all {
        &[NETWORKS_CHECK][..]
    } else {
        &[NETWORKS_CHECK, BRIEF]
    };
    // Their requests need rights of their own, so they come after the check of rights.
    let last: &[&[&str]] = if args.all {
        &[&[IPAM_CHECK], &[CLAIMS_CHECK]]
    } else {
        &[]
    };
    let long = if args.all {
        LONG_CHECKS
    } else {
        &[&[HOTPLUG_CHECK, BRIEF][..]]
    };
    let made = [
        &[&["agent-check"][..]],
        CHECKS,
        &[VIEW_CHECK],
        long,
        &[networks],
        last,
        &[&["deploy", "--remove"]],
    ]
    .concat();
    pass(own::Nodes::Wide { mtu: 1500 }, &made)
}

/// Moves clusters of other programs to braid and back, by the commands of the book.
fn moves(reference: &Path, pass: impl Fn(own::Nodes<'_>, &[&[&str]]) -> Result<()>) -> Result<()> {
    let nodes = |near, far| own::Nodes::Plugins {
        plugins: reference,
        near,
        far,
    };
    pass(nodes(2, 1), &[&["flannel-check", "vxlan"]])?;
    pass(nodes(3, 0), &[&["flannel-check", "host-gw"]])?;
    pass(nodes(2, 0), &[&["migration-check", "k3s"]])?;
    let from = [
        &["migration-check", "reference"][..],
        &["migration-check", "multus"],
    ];
    pass(with(reference, "reference"), &from)
}

/// Returns nodes with plugins, a list of `tests/testbed/conflists/` and kube-proxy.
fn with<'a>(plugins: &'a Path, conflist: &'a str) -> own::Nodes<'a> {
    own::Nodes::With {
        plugins,
        conflist,
        kube_proxy: true,
    }
}
