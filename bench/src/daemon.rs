//! A program that runs on a node during a measurement, such as the daemon of the plugins.

use crate::node::Node;
use anyhow::{Context, Result};
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio, id};

/// Process of the program. It is killed when this value is dropped, or when the bench ends.
pub(crate) struct Daemon(Child);

impl Daemon {
    /// Starts a program on a node.
    pub(crate) fn start(node: &Node, program: &Path, args: &[&str]) -> Result<Self> {
        let [mount, network] = node.namespaces().map(path);
        let options = [format!("--mount={mount}"), format!("--net={network}")];
        Self::enter(&options, program, args)
    }

    /// Starts a program in a network namespace.
    pub(crate) fn start_in(netns: &File, program: &Path, args: &[&str]) -> Result<Self> {
        Self::enter(&[format!("--net={}", path(netns.as_fd()))], program, args)
    }

    /// Returns the exit status of the program; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.0.try_wait().context("look at a daemon")
    }

    /// Starts a program in the namespaces of nsenter's `options`.
    fn enter(options: &[String], program: &Path, args: &[&str]) -> Result<Self> {
        // Each of these programs executes the next, so there is a single process.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "nsenter"])
            .args(options)
            .arg(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self(
            command
                .spawn()
                .with_context(|| format!("start {}", program.display()))?,
        ))
    }
}

/// Returns a path of a descriptor of this process that other processes can open.
fn path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/{}/fd/{}", id(), fd.as_raw_fd())
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
