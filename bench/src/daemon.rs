//! A program that runs on a node while plugins are measured there, such as the daemon that they
//! ask.

use crate::node::Node;
use anyhow::{Context, Result};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio, id};

/// The program's process, which ends with this value, and with the bench.
pub(crate) struct Daemon(Child);

impl Daemon {
    pub(crate) fn start(node: &Node, program: &Path) -> Result<Self> {
        let [mount, network] = node
            .namespaces()
            .map(|fd| format!("/proc/{}/fd/{}", id(), fd.as_raw_fd()));
        // Each of these programs becomes the next, so that all are one process.
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
        // An error says that it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
