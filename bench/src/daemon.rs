//! A program that runs on a node during a measurement, such as the daemon of the plugins.

use crate::node::Node;
use anyhow::{Context, Result};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio, id};

/// Process of the program. It is killed when this value is dropped, or when the bench ends.
pub(crate) struct Daemon(Child);

impl Daemon {
    pub(crate) fn start(node: &Node, program: &Path) -> Result<Self> {
        let [mount, network] = node
            .namespaces()
            .map(|fd| format!("/proc/{}/fd/{}", id(), fd.as_raw_fd()));
        // Each of these programs executes the next, so there is a single process.
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "nsenter",
            &format!("--mount={mount}"),
            &format!("--net={network}"),
        ]);
        command
            .arg(program)
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

impl Drop for Daemon {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
