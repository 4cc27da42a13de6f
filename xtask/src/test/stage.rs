//! A stage of a test run: a separate process, which ends together with its children.

use super::command::Args;
use crate::build;
use anyhow::{Context, Result, bail};
use braid_testbed::sh;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Seconds between SIGTERM and SIGKILL for a stage at its time limit.
const GRACE_S: u32 = 20;
/// Number of lines shown from a failed stage's log.
const SHOWN_LINES: usize = 100;

pub(super) struct Stage {
    pub(super) name: &'static str,
    /// Names of stages that must have passed before.
    pub(super) needs: &'static [&'static str],
    /// Name of a stage that must have ended, passed or failed.
    pub(super) after: Option<&'static str>,
    /// Time limit: three times the duration on two processors, including downloads and builds.
    pub(super) limit: Duration,
    pub(super) work: fn(&Args) -> Result<()>,
}

impl Stage {
    /// Runs the stage in a separate process. In the background (`is_behind`), the process has a
    /// lower priority and writes its output to a file.
    pub(super) fn run(&self, option: Option<&str>, limit: Duration, is_behind: bool) -> Result<()> {
        let own = std::env::current_exe().context("find this program")?;
        // Nice 5 gets about a quarter of a busy processor. With less, the last stage in the
        // foreground would wait for the background lanes.
        let nice = if is_behind { "5" } else { "0" };
        // `timeout` gets a signal when this program ends, and passes it on to all processes of the
        // stage.
        let mut command = sh::cmd(
            "setpriv",
            ["--pdeathsig", "TERM", "nice", "-n", nice, "timeout"],
        );
        command.args([
            format!("--kill-after={GRACE_S}"),
            limit.as_secs().to_string(),
        ]);
        command
            .arg(own)
            .arg("test")
            .args(option)
            .args(["--stage", self.name]);
        let log = folder()?.join(format!("{}.log", self.name));
        if is_behind {
            println!("=== {}, in the background: {}", self.name, log.display());
            let output = File::create(&log).with_context(|| format!("create {}", log.display()))?;
            command.stdout(output.try_clone()?).stderr(output);
        } else {
            println!("=== {}", self.name);
        }
        let start = Instant::now();
        let status = command
            .status()
            .with_context(|| format!("start {command:?}"))?;
        if status.success() {
            return Ok(());
        }
        if is_behind {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            println!(
                "{}",
                lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
            );
        }
        if start.elapsed() >= limit {
            bail!("not done within {} minutes", limit.as_secs() / 60);
        }
        bail!("{status}")
    }
}

/// Creates the folder for the files of a test run, if it is missing, and returns its path.
pub(super) fn folder() -> Result<PathBuf> {
    let folder = build::target_dir().join("test");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder)
}
