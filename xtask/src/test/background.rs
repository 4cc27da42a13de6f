//! Work beside the stages: it yields to them, and what it says is kept in a file.

use crate::{build, sh};
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Lines of a failed verb's output that are shown.
const SHOWN_LINES: usize = 60;

/// A verb of this program that runs in the background; it is ended with the value.
pub(super) struct Background {
    name: &'static str,
    log: PathBuf,
    group: Pid,
    ended: Option<JoinHandle<(std::io::Result<ExitStatus>, u64)>>,
}

impl Background {
    /// Starts a verb, which is ended after so many minutes.
    pub(super) fn start(name: &'static str, minutes: u32, verb: &[&str]) -> Result<Self> {
        let own = std::env::current_exe().context("find this program")?;
        let log = folder()?.join(format!("{}.log", name.replace(' ', "-")));
        let output = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut command: Command = sh::cmd("nice", ["-n19", "timeout", "--foreground", "-k10", &format!("{minutes}m")]);
        command.arg(own).args(verb).stdout(output.try_clone()?).stderr(output).process_group(0);
        let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
        println!("=== {name}, in the background: {}", log.display());
        let (start, group) = (Instant::now(), Pid::from_raw(i32::try_from(child.id())?));
        let ended = thread::spawn(move || (child.wait(), start.elapsed().as_secs()));
        Ok(Self { name, log, group, ended: Some(ended) })
    }

    /// Waits for its end; says how long it took, in seconds.
    pub(super) fn join(mut self) -> Result<(&'static str, u64)> {
        let Some(ended) = self.ended.take() else { bail!("{} was waited for before", self.name) };
        let (status, seconds) = ended.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let status = status.with_context(|| format!("wait for {}", self.name))?;
        if status.success() {
            return Ok((self.name, seconds));
        }
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n"));
        bail!("stage {:?}: {status} after {seconds} s, all that it said is in {}", self.name, self.log.display())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.ended.is_some() {
            // One that has ended meanwhile has nothing left to end.
            let _ = killpg(self.group, Signal::SIGTERM);
        }
    }
}

/// Where a run keeps its notes.
pub(super) fn folder() -> Result<PathBuf> {
    let folder = build::target_dir().join("test");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder)
}
