//! Standard streams of a program: its input is written and both outputs are read at the same time,
//! so neither side waits for the other. `wait_with_output` in std panics if a read fails.

#![expect(unsafe_code, reason = "pidfd_open has no safe wrapper")]

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::{Child, ChildStdin, ExitStatus};
use std::time::{Duration, Instant};

/// Exit status and outputs of a terminated program.
#[derive(Debug)]
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// Passes `input` to a program, reads its outputs, and waits for the program to terminate. The
/// program's streams must be pipes. The program need not read its input. If a pipe cannot be read, or
/// the program still runs or its outputs are open after `limit`, kills the program. The limit's error
/// is [`ErrorKind::TimedOut`].
pub fn wait(mut child: Child, input: &[u8], limit: Duration) -> io::Result<Ended> {
    let end = Instant::now() + limit;
    let outputs = exchange(&mut child, input, end).and_then(|outputs| {
        await_end(&child, end)?;
        Ok(outputs)
    });
    if outputs.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    let (stdout, stderr) = outputs?;
    Ok(Ended {
        status,
        stdout,
        stderr,
    })
}

/// Waits until a program has terminated. Fails with [`ErrorKind::TimedOut`] at `end`. Does not wait
/// where there is no descriptor of the process.
pub fn await_end(child: &Child, end: Instant) -> io::Result<()> {
    let Ok(process) = process(child) else {
        return Ok(());
    };
    loop {
        let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        if poll_until(&mut fds, end)? {
            return Ok(());
        }
    }
}

/// Returns a descriptor of a child process (Linux 5.3).
fn process(child: &Child) -> io::Result<OwnedFd> {
    // SAFETY: the call has no pointers.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) })?;
    let fd = i32::try_from(fd).or(Err(Errno::EBADF))?;
    // SAFETY: the kernel has just returned this descriptor, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until a descriptor is ready. Returns false after an interruption, and
/// [`ErrorKind::TimedOut`] at `end`.
fn poll_until(fds: &mut [PollFd<'_>], end: Instant) -> io::Result<bool> {
    let left = end.saturating_duration_since(Instant::now());
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    match poll(fds, timeout) {
        Err(Errno::EINTR) => Ok(false),
        Ok(0) if Instant::now() >= end => Err(ErrorKind::TimedOut.into()),
        polled => Ok(polled? > 0),
    }
}

fn exchange(child: &mut Child, input: &[u8], end: Instant) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut input = Input {
        pipe: child.stdin.take(),
        left: input,
    };
    let mut stdout = Output::of(child.stdout.take())?;
    let mut stderr = Output::of(child.stderr.take())?;
    if let Some(pipe) = &input.pipe {
        set_non_blocking(pipe)?;
    }
    input.write();
    let mut chunk = [0; 8192];
    loop {
        let mut fds = Vec::with_capacity(3);
        if let Some(pipe) = &input.pipe {
            fds.push(PollFd::new(pipe.as_fd(), PollFlags::POLLOUT));
        }
        if let Some(pipe) = &stdout.pipe {
            fds.push(PollFd::new(pipe.as_fd(), PollFlags::POLLIN));
        }
        if let Some(pipe) = &stderr.pipe {
            fds.push(PollFd::new(pipe.as_fd(), PollFlags::POLLIN));
        }
        if fds.is_empty() {
            return Ok((stdout.text, stderr.text));
        }
        if !poll_until(&mut fds, end)? {
            continue;
        }
        input.write();
        stdout.read(&mut chunk)?;
        stderr.read(&mut chunk)?;
    }
}

/// Input that the program has not received yet.
struct Input<'a> {
    /// `None` once all input is written, or if the program does not read it.
    pipe: Option<ChildStdin>,
    left: &'a [u8],
}

impl Input<'_> {
    /// Writes until the pipe is full.
    fn write(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        while !self.left.is_empty() {
            match pipe.write(self.left) {
                Ok(len) => self.left = self.left.get(len..).unwrap_or_default(),
                Err(err) if err.kind() == ErrorKind::Interrupted => {}
                Err(err) if err.kind() == ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
        }
        self.pipe = None;
    }
}

/// Output read so far.
struct Output<P> {
    /// `None` after the end of the output.
    pipe: Option<P>,
    text: Vec<u8>,
}

impl<P: Read + AsFd> Output<P> {
    fn of(pipe: Option<P>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            set_non_blocking(pipe)?;
        }
        let text = Vec::new();
        Ok(Self { pipe, text })
    }

    /// Reads once, if there is something to read.
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        match pipe.read(chunk) {
            Ok(0) => self.pipe = None,
            Ok(len) => self.text.extend(chunk.get(..len).unwrap_or_default()),
            Err(err) if matches!(err.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(err) => return Err(err),
        }
        Ok(())
    }
}

/// Sets this end of a pipe to non-blocking. The program's end is not affected.
fn set_non_blocking(pipe: &impl AsFd) -> io::Result<()> {
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    const LIMIT: Duration = Duration::from_mins(1);

    #[test]
    fn program_that_never_ends_is_killed() {
        for says in ["echo a; exec sleep 1000", "exec sleep 1000 <&- >&- 2>&-"] {
            let child = Command::new("/bin/sh")
                .args(["-c", says])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("started");
            let pid = child.id();
            let ended = wait(child, b"", Duration::from_millis(50)).map_err(|err| err.kind());
            assert!(
                matches!(ended, Err(ErrorKind::TimedOut)),
                "{says}: {ended:?}"
            );
            assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
        }
    }

    #[test]
    fn both_outputs_are_read_in_any_order_of_their_ends() {
        // The outputs alternate, with more than a pipe holds.
        let text = "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; \
            echo 0123456789012345678901234567890123456789 >&2; i=$((i + 1)); done";
        for (end, lens) in [
            ("true", [123_000, 123_000]),
            ("exec >&-; echo a >&2", [123_000, 123_002]),
            ("exec 2>&-; echo a", [123_002, 123_000]),
        ] {
            let mut command = Command::new("/bin/sh");
            let child = command.args(["-c", &format!("{text}; {end}; exit 3")]);
            let child = child
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("started");
            let ended = wait(child, b"", LIMIT).expect("read");
            assert_eq!(
                (
                    [ended.stdout.len(), ended.stderr.len()],
                    ended.status.code()
                ),
                (lens, Some(3)),
                "{end}"
            );
        }
    }

    #[test]
    fn program_that_writes_much_before_it_reads_a_long_input_gets_all_of_it() {
        let input = vec![b'x'; 300_000];
        for (says, len) in [
            ("head -c 300000 /dev/zero >&2; cat", input.len()),
            ("head -c 300000 /dev/zero >&2; exec <&-", 0),
            ("head -c 300000 /dev/zero >&2; head -c 100000", 100_000),
        ] {
            // Ends the program if both sides wait for each other.
            let child = Command::new("timeout")
                .args(["20", "/bin/sh", "-c", says])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("started");
            let ended = wait(child, &input, LIMIT).expect("read");
            let lens = [ended.stdout.len(), ended.stderr.len()];
            assert_eq!(
                (lens, ended.status.code()),
                ([len, 300_000], Some(0)),
                "{says}"
            );
        }
    }
}
