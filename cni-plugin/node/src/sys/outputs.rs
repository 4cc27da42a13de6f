//! Both outputs of a program, read to their ends. `wait_with_output` in std panics if a read fails.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};

/// A terminated program.
#[derive(Debug)]
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// Waits for a program whose outputs are pipes to terminate, even if the pipes cannot be read.
pub fn wait(mut child: Child) -> io::Result<Ended> {
    let read = match (child.stdout.take(), child.stderr.take()) {
        (Some(stdout), Some(stderr)) => both(stdout, stderr),
        _ => Ok((Vec::new(), Vec::new())),
    };
    let status = child.wait()?;
    let (stdout, stderr) = read?;
    Ok(Ended {
        status,
        stdout,
        stderr,
    })
}

fn both(one: impl Read + AsFd, other: impl Read + AsFd) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut texts, mut chunk) = ((Vec::new(), Vec::new()), [0; 8192]);
    let (mut one, mut other) = (Some(one), Some(other));
    while let (Some(first), Some(second)) = (&one, &other) {
        let mut fds = [
            PollFd::new(first.as_fd(), PollFlags::POLLIN),
            PollFd::new(second.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            polled => polled?,
        };
        let [is_first, is_second] = fds.map(|fd| fd.any().unwrap_or_default());
        if is_first && !more(&mut one, &mut texts.0, &mut chunk)? {
            one = None;
        }
        if is_second && !more(&mut other, &mut texts.1, &mut chunk)? {
            other = None;
        }
    }
    while more(&mut one, &mut texts.0, &mut chunk)? {}
    while more(&mut other, &mut texts.1, &mut chunk)? {}
    Ok(texts)
}

/// Reads once. Returns false at the end.
fn more(pipe: &mut Option<impl Read>, text: &mut Vec<u8>, chunk: &mut [u8]) -> io::Result<bool> {
    let Some(pipe) = pipe else { return Ok(false) };
    loop {
        match pipe.read(chunk) {
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            read => {
                let len = read?;
                text.extend(chunk.get(..len).unwrap_or_default());
                return Ok(len > 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

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
            let ended = wait(child).expect("read");
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
}
