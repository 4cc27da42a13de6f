//! System calls that a plugin call makes, and plugin calls with a fault in one of them. Both use
//! strace.

use braid_tests::{Answer, Call};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::process::Command;

/// Output file of strace in the sandbox.
const TRACE: &str = "/run/strace";
/// Lock in the sandbox that a call under strace and all programs that it starts hold until they end.
const LOCK: &str = "/run/strace.lock";
/// Upper bound for the number of system calls of a plugin call. It includes a call for three
/// networks, and the first call after a boot, which detects kernel features.
const MOST: usize = 1500;
/// Time limit of a call under strace, in seconds. A call that exceeds it ends with [`HUNG`].
const PATIENCE_S: u32 = 120;
/// Exit code of `timeout` after it has killed its command.
pub(crate) const HUNG: i32 = 124;
/// Exit code for a process that SIGKILL has ended.
pub(crate) const KILLED: i32 = 128 + 9;
/// Number of characters of a system call that messages show.
const SHOWN_LEN: usize = 100;

/// A point of a plugin call: one of its system calls.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    /// Name of the system call.
    syscall: String,
    /// Number of this system call among those with the same name. strace counts from 1.
    nth: usize,
    /// The system call as strace prints it.
    text: String,
    /// True if braid has not read its standard input yet at this point.
    pub(crate) is_start_up: bool,
}

/// Fault that is injected at a point.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// The process is killed instead of making the system call.
    Kill,
    /// The system call is not made, and returns this errno.
    Error(&'static str),
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.syscall, self.nth, self.text)
    }
}

impl Point {
    fn of(syscall: &str, text: &str, is_start_up: bool) -> Self {
        let text = text.chars().take(SHOWN_LEN).collect();
        Self {
            syscall: syscall.to_owned(),
            nth: 1,
            text,
            is_start_up,
        }
    }

    /// Returns the errnos to inject at this point, each in a separate trial.
    pub(crate) fn errors(&self) -> &'static [&'static str] {
        match self.syscall.as_str() {
            // exit_group does not return, close takes effect even if it fails, and std panics if it
            // fails for a folder. Any kernel error of futex, with which glibc waits for a thread,
            // is fatal in glibc.
            "exit_group" | "close" | "futex" => &[],
            // A thread of tokio wakes another with this write, which no kernel fails: an eventfd
            // accepts a 1 until its counter is 2^64 - 2 (v6.12 `fs/eventfd.c`, `eventfd_write()`).
            // tokio ends the process on an error.
            "write" if self.text.contains(r#""\1\0\0\0\0\0\0\0", 8)"#) => &[],
            // With this flag the kernel neither waits nor fails (v6.12 `drivers/char/random.c`,
            // `getrandom`). std panics on an error.
            "getrandom" if self.text.contains("GRND_INSECURE") => &[],
            // EINTR is the only error that the kernel can return here.
            "epoll_wait" | "epoll_pwait" => &["EINTR"],
            "brk" | "mmap" => &["ENOMEM"],
            "recvfrom" => &["EIO", "ENOBUFS"],
            "sendto" | "socket" => &["EIO", "ENOMEM"],
            _ => &["EIO"],
        }
    }

    /// True if the process may end without a report after this system call fails. The C library and
    /// the allocator end the process on an error, and braid ends it if a thread cannot leave a
    /// container's namespace.
    pub(crate) fn may_end_the_process(&self) -> bool {
        self.is_start_up || matches!(self.syscall.as_str(), "brk" | "mmap" | "mremap" | "setns")
    }

    /// True if the system call waits until data is on a disk.
    pub(crate) fn waits_for_a_disk(&self) -> bool {
        let syncs = [
            "fsync",
            "fdatasync",
            "sync",
            "syncfs",
            "sync_file_range",
            "msync",
        ];
        syncs.contains(&self.syscall.as_str())
            || self.text.contains("O_SYNC")
            || self.text.contains("O_DSYNC")
    }

    /// True if the system call writes the result of the plugin call.
    pub(crate) fn is_answer(&self) -> bool {
        self.text.starts_with("write(1,")
    }
}

/// Returns all points of `call`, in order. The call must succeed.
pub(crate) fn points(call: &Call, verb: &str) -> Vec<Point> {
    let answer = call
        .clone()
        .under(&format!("strace -f -b execve -qq -o {TRACE}"))
        .run(verb);
    assert_eq!(
        answer.code, 0,
        "{verb} under strace: {} {}",
        answer.stdout, answer.stderr
    );
    let trace = fs::read_to_string(TRACE).expect("what strace wrote");
    let mut points: Vec<Point> = Vec::new();
    let mut is_start_up = true;
    let pid_of = |line: &'_ str| line.split_once(' ').map(|(pid, _)| pid.to_owned());
    // Foreign plugins, and the programs that those start.
    let others: BTreeSet<String> = trace
        .lines()
        .skip(1)
        .filter(|line| call_of(line).starts_with("execve("))
        .filter_map(pid_of)
        .collect();
    // strace counts from the first system call after `execve`.
    for line in trace.lines().skip(1) {
        if pid_of(line).is_some_and(|pid| others.contains(&pid)) {
            continue;
        }
        let text = call_of(line);
        let Some((syscall, _)) = text.split_once('(') else {
            continue;
        };
        // This line is the end of a system call that another process' line has interrupted.
        if text.starts_with("<...") {
            continue;
        }
        // A sysctl write is restarted if another process changes a link meanwhile, so this line is
        // not in every run.
        if text.ends_with("(To be restarted)") {
            continue;
        }
        is_start_up &= !text.starts_with("read(0,");
        let nth = 1 + points
            .iter()
            .filter(|point| point.syscall == syscall)
            .count();
        points.push(Point {
            nth,
            ..Point::of(syscall, text, is_start_up)
        });
    }
    assert!(
        !is_start_up && points.len() > 50,
        "this is no plugin call: {trace}"
    );
    assert!(
        points.len() < MOST,
        "{verb} makes {} system calls: {trace}",
        points.len()
    );
    points
}

/// Returns the system call in a line of strace, without the process ID.
fn call_of(line: &str) -> &str {
    line.split_once(' ')
        .map_or(line, |(_pid, text)| text.trim_start())
}

/// True if strace injected an error that the kernel can return there. The order of threads varies,
/// so the failed system call may have other arguments than the point had.
fn failed(trace: &str, syscall: &str, errno: &str) -> bool {
    let made = trace.lines().find(|line| line.contains("(INJECTED)"));
    made.is_some_and(|line| {
        Point::of(syscall, call_of(line), false)
            .errors()
            .contains(&errno)
    })
}

/// Waits until the programs end that a killed call has started. They finish their work alone, as
/// after the kill of any plugin, and a DEL that comes before that cannot know their state. Each of
/// them has inherited the file whose lock `run` took.
fn await_programs() {
    let wait = ["-w", &PATIENCE_S.to_string(), LOCK, "true"];
    let status = Command::new("flock").args(wait).status();
    assert!(
        status.expect("flock").success(),
        "a program of a killed call does not end"
    );
}

/// Runs `call` with a fault at `point`. `None` if the call did not reach the point. strace follows the
/// plugin's threads, but no program that the plugin starts (`-b execve`).
pub(crate) fn run(call: &Call, verb: &str, point: &Point, fault: Fault) -> Option<Answer> {
    let Point { syscall, nth, .. } = point;
    let what = match fault {
        Fault::Kill => "signal=KILL".to_owned(),
        Fault::Error(errno) => format!("error={errno}"),
    };
    let strace = format!(
        "strace -f -b execve -qq -o {TRACE} -e trace={syscall} -e inject={syscall}:{what}:when={nth}"
    );
    let answer = call
        .clone()
        .under(&format!(
            "flock -F {LOCK} timeout -k 1 {PATIENCE_S} {strace}"
        ))
        .run(verb);
    if matches!(fault, Fault::Kill) {
        await_programs();
    }
    let happened = match fault {
        Fault::Kill => answer.code == KILLED,
        Fault::Error(errno) => {
            fs::read_to_string(TRACE).is_ok_and(|trace| failed(&trace, syscall, errno))
        }
    };
    (happened || answer.code == HUNG).then_some(answer)
}
