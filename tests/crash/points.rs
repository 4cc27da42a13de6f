//! The system calls of a plugin call, and the same call with one of them going wrong: strace does
//! both.

use braid_tests::{Answer, Call};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;

/// Where strace writes, in the sandbox.
const TRACE: &str = "/run/strace";
/// A call makes fewer, even the first one on a boot, which asks the kernel what it can, and one for
/// three networks.
const MOST: usize = 1500;
/// How long a call under strace may take; one that hangs is ended with [`HUNG`].
const PATIENCE_S: u32 = 120;
/// Exit code of `timeout` when it had to end its command.
pub(crate) const HUNG: i32 = 124;
/// Exit code of a process that was killed.
pub(crate) const KILLED: i32 = 128 + 9;
/// Longest part of a system call that is shown.
const SHOWN_LEN: usize = 100;

/// One system call of a plugin call.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    /// Its name.
    syscall: String,
    /// Which one of this name; strace counts from 1.
    nth: usize,
    /// As strace showed it.
    text: String,
    /// Whether the program had not even read its input.
    pub(crate) is_start_up: bool,
}

/// What happens at a point.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// The process dies instead of making the system call.
    Kill,
    /// The system call is not made and returns this error.
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

    /// Errors that it is made to return, each in a trial of its own.
    pub(crate) fn errors(&self) -> &'static [&'static str] {
        match self.syscall.as_str() {
            // The first does not return, the second is done though it fails, and std panics if it
            // fails for a folder. No kernel fails the third, by which glibc waits for a
            // thread, in a way that glibc survives.
            "exit_group" | "close" | "futex" => &[],
            // Nor does it fail this one, by which a thread of tokio wakes another: an eventfd takes
            // a 1 until 2^64 - 2 are in it (v6.12 `fs/eventfd.c`, `eventfd_write()`).
            // tokio ends the process then.
            "write" if self.text.contains(r#""\1\0\0\0\0\0\0\0", 8)"#) => &[],
            // With this flag the kernel neither waits nor fails (v6.12 `drivers/char/random.c`,
            // `getrandom`). std panics then.
            "getrandom" if self.text.contains("GRND_INSECURE") => &[],
            // Nothing else can go wrong with it.
            "epoll_wait" | "epoll_pwait" => &["EINTR"],
            "brk" | "mmap" => &["ENOMEM"],
            "recvfrom" => &["EIO", "ENOBUFS"],
            "sendto" | "socket" => &["EIO", "ENOMEM"],
            _ => &["EIO"],
        }
    }

    /// True if no program can go on, or report, when this system call fails: the C library and the
    /// allocator end it, and braid itself does when a thread can't come back from a container's
    /// namespace.
    pub(crate) fn may_end_the_process(&self) -> bool {
        self.is_start_up || matches!(self.syscall.as_str(), "brk" | "mmap" | "mremap" | "setns")
    }

    /// Whether it waits until something is on a disk.
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

    /// Whether it writes the answer.
    pub(crate) fn is_answer(&self) -> bool {
        self.text.starts_with("write(1,")
    }
}

/// The system calls of `call`, which must succeed.
pub(crate) fn points(call: &Call, verb: &str) -> Vec<Point> {
    let answer = call
        .clone()
        .under(&format!("strace -f -qq -o {TRACE}"))
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
    // Foreign plugins, and the programs that they start.
    let others: BTreeSet<String> = trace
        .lines()
        .skip(1)
        .filter(|line| call_of(line).starts_with("execve("))
        .filter_map(pid_of)
        .collect();
    // strace counts from the first system call behind `execve`.
    for line in trace.lines().skip(1) {
        if pid_of(line).is_some_and(|pid| others.contains(&pid)) {
            continue;
        }
        let text = call_of(line);
        let Some((syscall, _)) = text.split_once('(') else {
            continue;
        };
        // The end of one that another process came between.
        if text.starts_with("<...") {
            continue;
        }
        // Not in every run: sysctls give way to who changes a link.
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

/// A line of strace without the process in front.
fn call_of(line: &str) -> &str {
    line.split_once(' ')
        .map_or(line, |(_pid, text)| text.trim_start())
}

/// Whether a system call that the kernel may fail so was made to. Threads take turns, so this may
/// be another one than in the run that was counted.
fn failed(trace: &str, syscall: &str, errno: &str) -> bool {
    let made = trace.lines().find(|line| line.contains("(INJECTED)"));
    made.is_some_and(|line| {
        Point::of(syscall, call_of(line), false)
            .errors()
            .contains(&errno)
    })
}

/// Runs `call` with a fault; `None` where it never came to that point.
pub(crate) fn run(call: &Call, verb: &str, point: &Point, fault: Fault) -> Option<Answer> {
    let Point { syscall, nth, .. } = point;
    let what = match fault {
        Fault::Kill => "signal=KILL".to_owned(),
        Fault::Error(errno) => format!("error={errno}"),
    };
    let strace = format!(
        "strace -f -qq -o {TRACE} -e trace={syscall} -e inject={syscall}:{what}:when={nth}"
    );
    let answer = call
        .clone()
        .under(&format!("timeout -k 1 {PATIENCE_S} {strace}"))
        .run(verb);
    let happened = match fault {
        Fault::Kill => answer.code == KILLED,
        Fault::Error(errno) => {
            fs::read_to_string(TRACE).is_ok_and(|trace| failed(&trace, syscall, errno))
        }
    };
    (happened || answer.code == HUNG).then_some(answer)
}
