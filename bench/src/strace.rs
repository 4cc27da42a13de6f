//! Counts of the system calls of a plugin call, from a log of strace.

/// Counts of the system calls of a plugin call and of its child processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) syscalls: usize,
    /// New processes, without the plugins that the bench started.
    pub(crate) forks: usize,
    /// New threads.
    pub(crate) threads: usize,
    /// Successful execs, including those of the plugins.
    pub(crate) execs: usize,
}

impl Trace {
    /// Counts the calls in a strace log (`-f -o`) with lines of process ID, call and result.
    pub(crate) fn of(log: &str) -> Self {
        let mut trace = Trace::default();
        for line in log.lines() {
            let call = line
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .trim_start();
            let resumed = call.strip_prefix("<... ");
            let name = resumed
                .unwrap_or(call)
                .split(['(', ' '])
                .next()
                .unwrap_or_default();
            if name == "execve" && call.ends_with("= 0") {
                trace.execs += 1;
            }
            if resumed.is_some() || call.starts_with("+++") || call.starts_with("---") {
                continue;
            }
            trace.syscalls += 1;
            match name {
                "clone" | "clone3" if call.contains("CLONE_THREAD") => trace.threads += 1,
                "clone" | "clone3" | "fork" | "vfork" => trace.forks += 1,
                _ => {}
            }
        }
        trace
    }

    pub(crate) fn add(self, other: Self) -> Self {
        Trace {
            syscalls: self.syscalls + other.syscalls,
            forks: self.forks + other.forks,
            threads: self.threads + other.threads,
            execs: self.execs + other.execs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_split_by_another_process_count_once() {
        let log = "\
10 execve(\"/x/bridge\", [\"/\"...], 0x7ffc /* 9 vars */) = 0
10 clone(child_stack=0xc0, flags=CLONE_VM|CLONE_FS|CLONE_THREAD, tls=0x1) = 11
10 clone3({flags=CLONE_VM|CLONE_VFORK, exit_signal=SIGCHLD}, 88 <unfinished ...>
12 execve(\"/a/iptables\", [\"i\"...], 0x7) = -1 ENOENT (No such file or directory)
12 execve(\"/b/iptables\", [\"i\"...], 0x7 <unfinished ...>
10 <... clone3 resumed>)   = 12
12 <... execve resumed>)   = 0
12 exit_group(0)           = ?
12 +++ exited with 0 +++
10 --- SIGCHLD {si_signo=SIGCHLD} ---
";
        assert_eq!(
            Trace::of(log),
            Trace {
                syscalls: 6,
                forks: 1,
                threads: 1,
                execs: 2
            }
        );
    }
}
