//! `cargo xtask vm`: runs a command on Debian's kernels in an emulated machine, with the files of
//! this machine.

mod apt;
mod guest;
mod initrd;
mod kernel;

use crate::dist;
use crate::test::{journal, sample};
use anyhow::{Context, Result, bail};
use braid_testbed::sh;
use kernel::Kernel;
use std::io::{Write, stdout};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Kernels of Debian 12 and Debian 13, and the newest backport to Debian 13.
const ALL: [&str; 3] = ["6.1", "6.12", "newest"];

/// One in this many crash points is tried on an emulated machine. With `--part`, the number is
/// [`SAMPLED_STEP`].
const CRASH_STEP: u64 = 45;
const SAMPLED_STEP: u64 = 61;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// 6.1, 6.12, … or newest
    kernels: Vec<String>,
    /// 6.1, 6.12 and newest
    #[arg(long, conflicts_with = "kernels")]
    all: bool,
    /// Run only the tests of features that this machine's kernel lacks or that differ between
    /// kernels
    #[arg(long)]
    lacking: bool,
    /// Run only the tests that a run on this machine skipped because of its kernel, according to
    /// that run's journal
    #[arg(long, value_name = "NOTES", conflicts_with = "lacking")]
    skipped: Option<PathBuf>,
    /// Run one in N of the skipped tests, starting with the Kth
    #[arg(long, value_name = "K/N", requires = "skipped")]
    part: Option<Part>,
    /// Minutes after which a guest is ended
    #[arg(long, default_value_t = 40)]
    timeout: u32,
    /// Memory of a guest, in GiB
    #[arg(long, default_value_t = 2)]
    memory: u32,
    /// Command that the guest runs as root [default: the tests that depend on the kernel]
    #[arg(last = true)]
    command: Vec<String>,
}

/// Selection of one test in `step`, starting with number `offset`. Written as `offset/step`; `step`
/// is at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: usize,
    pub(crate) step: usize,
}

impl Part {
    const ALL: Self = Self { offset: 0, step: 1 };

    pub(crate) fn of(self, tests: Vec<String>) -> Vec<String> {
        tests
            .into_iter()
            .skip(self.offset)
            .step_by(self.step)
            .collect()
    }
}

impl FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (offset, step) = text.split_once('/').context("not of the form K/N")?;
        let part = Self {
            offset: offset.parse().context("K")?,
            step: step.parse().context("N")?,
        };
        if part.offset >= part.step {
            bail!("K is less than N");
        }
        Ok(part)
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let kernels: Vec<&str> = if args.all {
        ALL.to_vec()
    } else {
        args.kernels.iter().map(String::as_str).collect()
    };
    if kernels.is_empty() {
        bail!("which kernel? {} or --all", ALL.join(", "));
    }
    sh::apt(&[
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("depmod", "kmod"),
        ("xz", "xz-utils"),
        ("busybox", "busybox-static"),
    ])?;
    let command = if args.command.is_empty() {
        tests(args)?
    } else {
        args.command.clone()
    };
    let mut fetched = Vec::<Kernel>::new();
    for wanted in kernels {
        let kernel = kernel::fetch(wanted).with_context(|| format!("get kernel {wanted}"))?;
        // `newest` may be the same kernel as another one in the list.
        if fetched.iter().all(|other| other.release != kernel.release) {
            fetched.push(kernel);
        }
    }
    let kernels = fetched;
    let processors = std::thread::available_parallelism().context("count the processors")?;
    let bounds = guest::Bounds {
        timeout_minutes: args.timeout,
        memory: args.memory,
    };
    let ended = side_by_side(&kernels, processors.get(), |kernel| {
        guest::run(kernel, &command, bounds)
    });
    let mut failed = Vec::new();
    for Ended {
        kernel,
        code,
        seconds,
    } in ended
    {
        let verdict = match &code {
            Ok(0) => "passed".to_owned(),
            Ok(code) => format!("FAILED: exit code {code}"),
            Err(err) => format!("FAILED: {err:#}"),
        };
        writeln!(stdout(), "{:32} {verdict} ({seconds} s)", kernel.release)?;
        if !matches!(code, Ok(0)) {
            failed.push(&*kernel.release);
        }
    }
    if !failed.is_empty() {
        bail!("failed on {}", failed.join(", "));
    }
    Ok(())
}

struct Ended<'a> {
    kernel: &'a Kernel,
    code: Result<i32>,
    seconds: u64,
}

/// Runs a guest for each kernel, with at most `at_once` at the same time, because a guest occupies
/// one processor. Returns the results in the order of `kernels`.
fn side_by_side(
    kernels: &[Kernel],
    at_once: usize,
    run: impl Fn(&Kernel) -> Result<i32> + Sync,
) -> Vec<Ended<'_>> {
    let next = AtomicUsize::new(0);
    let one_by_one = || {
        let mut ended = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(kernel) = kernels.get(place) else {
                return ended;
            };
            let start = Instant::now();
            ended.push((
                place,
                Ended {
                    kernel,
                    code: run(kernel),
                    seconds: start.elapsed().as_secs(),
                },
            ));
        }
    };
    let mut ended = std::thread::scope(|scope| {
        let guests: Vec<_> = (0..at_once).map(|_| scope.spawn(one_by_one)).collect();
        let mut ended = Vec::new();
        for guest in guests {
            ended.extend(guest.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        ended
    });
    ended.sort_unstable_by_key(|(place, _)| *place);
    ended.into_iter().map(|(_, ended)| ended).collect()
}

/// Builds braid and its tests, and returns the command that runs the tests that depend on the
/// kernel.
///
/// The command runs the network namespace tests, except tests of input and comparisons with the
/// reference plugins. It also runs the crash points of link kinds that not every kernel has. With
/// `lacking`, it runs only tests of features that differ between kernels. With `skipped`, it runs
/// the tests that the journal lists as skipped.
fn tests(args: &Args) -> Result<Vec<String>> {
    const TESTS: &[&str] = &[
        "test",
        "--no-run",
        "--message-format",
        "json",
        "--package",
        "braid-tests",
    ];
    // Without optimization, an emulated machine would need seconds.
    let braid = dist::unordered()?;
    let built = sh::read(&mut sh::cmd("cargo", TESTS))
        .with_context(|| format!("cargo {}", TESTS.join(" ")))?;
    let find = |name: &str| {
        executable(&built, name).with_context(|| format!("cargo names no executable for {name:?}"))
    };
    let (netns, crash) = (find("netns")?, find("crash")?);
    let reference = sh::cache().join("reference");
    let step = if args.part.is_some() {
        SAMPLED_STEP
    } else {
        CRASH_STEP
    };
    let offset = sample::commit_number() % step;
    let crash = format!("BRAID_CRASH_STEP={step} BRAID_CRASH_OFFSET={offset} {crash}");
    let kinds = ["ipvlan", "vlan", "dummy"];
    let points = crash_points(&[&kinds[..], &["netkit", "shaped_bridge_of_netkits"]].concat());
    let run = if let Some(notes) = &args.skipped {
        let part = args.part.unwrap_or(Part::ALL);
        both(
            &exactly(&netns, notes, "netns", part)?,
            &exactly(&crash, notes, "crash", part)?,
        )
    } else if args.lacking {
        let host_ports = "of_a_bridge_by_ebpf with_ebpf_ gateway_on_the in_a_vlan_of an_sctp";
        let neighbours = "bridge::neighbours bridge::a_container";
        let lacking = format!(
            "ipvlan vlan:: dummy:: dhcp::types netkit ports:: bridge_with_vlans bandwidth:: {host_ports} {neighbours} doctor_agrees"
        );
        both(
            &format!("{netns} {lacking}"),
            &format!("{crash} --exact {points}"),
        )
    } else {
        let all = format!("{netns} --skip hostile:: --skip parallel:: --skip reference::");
        let reference = kinds.map(|kind| format!("reference::{kind}")).join(" ");
        let netkits = "reference::bridge_and_ptp_of_netkits_differ_only_in_kind";
        both(
            &both(&all, &format!("{netns} --exact {reference} {netkits}")),
            &format!("{crash} --exact {points}"),
        )
    };
    let script = format!(
        "export BRAID_BIN={} BRAID_REFERENCE={}; {run}",
        braid.display(),
        reference.display()
    );
    Ok(["sh", "-c", &script].map(String::from).to_vec())
}

/// Returns the names of the crash tests for these link kinds, separated by spaces.
fn crash_points(kinds: &[&str]) -> String {
    let mut points = Vec::new();
    for kind in kinds {
        points.push(format!("{kind}_add_can_stop_anywhere"));
        points.push(format!("{kind}_del_can_stop_anywhere"));
    }
    points.join(" ")
}

/// Returns a shell command that runs two commands, the second even if the first fails. It fails if
/// one of the two commands fails.
fn both(first: &str, second: &str) -> String {
    format!("{first}; first=$?; {second} && [ $first = 0 ]")
}

/// Returns a shell command that runs skipped tests of `target` with the program `run`. The journal
/// `notes` lists the tests that were skipped because of the kernel. The command runs only the
/// selection `part` of these tests.
fn exactly(run: &str, notes: &Path, target: &str, part: Part) -> Result<String> {
    let tests = part.of(journal::left_to_other_kernels(notes, target)?);
    Ok(if tests.is_empty() {
        "true".to_owned()
    } else {
        format!("{run} --exact {}", tests.join(" "))
    })
}

/// Returns the executable of the target `name` from cargo's messages, one JSON object per line.
fn executable(messages: &str, name: &str) -> Option<String> {
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        if message["target"]["name"] == name
            && let Some(executable) = message["executable"].as_str()
        {
            return Some(executable.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::Barrier;

    #[test]
    fn two_guests_run_concurrently_and_results_match_their_kernels() {
        let kernels = ["a", "bb", "ccc"].map(|release| Kernel {
            release: release.to_owned(),
            image: PathBuf::new(),
            modules: PathBuf::new(),
        });
        let meeting = Barrier::new(2);
        let ended = side_by_side(&kernels, 2, |kernel| {
            if kernel.release != "a" {
                meeting.wait();
            }
            Ok(i32::try_from(kernel.release.len())?)
        });
        for (index, ended) in ended.into_iter().enumerate() {
            assert_eq!(ended.kernel.release, kernels[index].release);
            assert_eq!(ended.code.unwrap(), i32::try_from(index).unwrap() + 1);
        }
    }

    #[test]
    fn parts_cover_all_tests_exactly_once() {
        let tests = || ["a", "b", "c", "d"].map(String::from).to_vec();
        let parts = ["0/3", "1/3", "2/3"].map(|part| part.parse::<Part>().unwrap().of(tests()));
        assert_eq!(parts, [vec!["a", "d"], vec!["b"], vec!["c"]]);
        assert_eq!(Part::ALL.of(tests()), tests());
        assert!(
            ["3/3", "0/0", "1", "a/b"]
                .iter()
                .all(|part| part.parse::<Part>().is_err())
        );
    }

    #[test]
    fn the_second_command_always_runs_and_either_can_fail() {
        for (first, second) in [(true, true), (true, false), (false, true), (false, false)] {
            let script = both(&first.to_string(), &format!("(echo said; {second})"));
            let done = sh::cmd("sh", ["-c", &script]).output().unwrap();
            assert_eq!(
                (done.status.success(), &*done.stdout),
                (first && second, &b"said\n"[..])
            );
        }
    }

    #[test]
    fn the_executable_is_the_one_of_the_named_target() {
        let messages = "{\"target\":{\"name\":\"netns\"},\"executable\":null}\nnot json\n\
                        {\"target\":{\"name\":\"other\"},\"executable\":\"/o\"}\n{\"target\":{\"name\":\"netns\"},\"executable\":\"/n\"}\n";
        assert_eq!(executable(messages, "netns").as_deref(), Some("/n"));
    }
}
