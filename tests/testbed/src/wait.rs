//! Waits with a deadline for conditions of the cluster, and prints the logs that explain a failure.

use crate::sh;
use crate::state::Cluster;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(100);
const LOG_LINES: usize = 15;

/// Environment variable with a factor for all time limits of the cluster, for slow machines. Its
/// value is a whole number; the default is 1.
const SLOWNESS: &str = "BRAID_SLOWNESS";

/// Returns `limit` multiplied by the factor for slow machines, `$BRAID_SLOWNESS`.
pub fn on_this_machine(limit: Duration) -> Duration {
    let slowness = std::env::var(SLOWNESS).unwrap_or_default();
    limit * slowness.parse::<u32>().unwrap_or(1).max(1)
}

/// Returns kubectl's `--timeout` flag for `limit` multiplied by the factor for slow machines.
pub fn timeout(limit: Duration) -> String {
    format!("--timeout={}s", on_this_machine(limit).as_secs())
}

/// Calls `holds` every 100 ms until it returns true. Fails after `limit` multiplied by the factor
/// for slow machines.
pub fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let (start, limit) = (Instant::now(), on_this_machine(limit));
    while !holds().with_context(|| format!("wait until {what}"))? {
        if start.elapsed() > limit {
            bail!("wait until {what}: not within {limit:?}");
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Calls `attempt` every 100 ms until it succeeds. Returns its last error after `limit` multiplied
/// by the factor for slow machines.
pub fn eventually<T>(limit: Duration, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let (start, limit) = (Instant::now(), on_this_machine(limit));
    loop {
        let result = attempt();
        if result.is_ok() || start.elapsed() > limit {
            return result.with_context(|| format!("still failing after {limit:?}"));
        }
        std::thread::sleep(POLL);
    }
}

/// Waits until all nodes are Ready.
pub fn nodes(cluster: &Cluster) -> Result<()> {
    let wait = ["wait", "node", "--all", "--for=condition=Ready"];
    sh::read(cluster.kubectl(wait).arg(timeout(Duration::from_mins(1))))?;
    Ok(())
}

/// Runs `command`, discards its output, and returns true if it succeeds.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    Ok(status
        .with_context(|| format!("start {command:?}"))?
        .success())
}

/// Starts `command` in the background. Its output is appended to the log `name`.
pub(crate) fn daemon(cluster: &Cluster, name: &str, command: &mut Command) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    let path = cluster.log(name);
    let log = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("open {}", path.display()))?;
    // A separate process group: the terminal's interrupt ends the tool, and the daemons keep
    // running.
    command
        .stdout(log.try_clone()?)
        .stderr(log)
        .stdin(Stdio::null())
        .process_group(0);
    command
        .spawn()
        .with_context(|| format!("start {command:?}"))
}

/// Returns an error if a daemon has ended.
pub(crate) fn alive(daemons: &mut [(&str, Child)]) -> Result<()> {
    for (name, child) in daemons {
        if let Some(status) = child.try_wait()? {
            bail!("{name} ended: {status}");
        }
    }
    Ok(())
}

/// Prints the last lines of each log.
pub(crate) fn print_logs(cluster: &Cluster, names: &[String]) {
    for name in names {
        let text = std::fs::read(cluster.log(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        eprintln!("--- {}", cluster.log(name).display());
        for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
            eprintln!("{line}");
        }
    }
}
