//! `braid sysdump`: the state of this node in one archive, for a report of a fault.
//!
//! ```text
//!  kernel, records, leases, conflists ─► collect ─► records, reduce ─► archive
//!                       logs, metrics ─►            (no secrets)
//! ```
//!
//! A part that cannot be read is a line in `errors.txt` of the archive.

mod archive;
mod collect;
mod logs;
mod metrics;
mod records;
mod reduce;
mod report;

use super::{Outcome, SUCCESS, output};
use archive::{Archive, Target};
use braid_node::sys::sysctl;
use clap::Args;
use report::Report;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Path that stands for standard output.
const STDOUT: &str = "-";
/// Default port of the agent's `/metrics`.
const METRICS_PORT: u16 = 4628;

/// Write the state of this node to an archive, for a bug report; without secrets of networks
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// New file for the archive (.tar.gz); "-" is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Port of the agent's /metrics
    #[arg(long, value_name = "PORT", default_value_t = METRICS_PORT)]
    metrics_port: u16,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let port = arguments.metrics_port;
    if arguments.output == Path::new(STDOUT) {
        let stdout = io::stdout();
        if stdout.is_terminal() {
            return Err("write the archive to standard output: it is a terminal".into());
        }
        write(stdout.lock(), port).map_err(|err| format!("write to standard output: {err}"))?;
        return Ok(SUCCESS);
    }
    let path = arguments.output.display();
    let target =
        Target::create(&arguments.output).map_err(|err| format!("create {path}: {err}"))?;
    let size = write(&target, port)
        .and_then(|()| target.complete())
        .map_err(|err| format!("write {path}: {err}"))?;
    Ok(output::print(&format!("{path}  {size} bytes\n")))
}

fn write(to: impl Write, metrics_port: u16) -> io::Result<()> {
    let now = SystemTime::now();
    let node = node();
    let archive = Archive::new(to, &folder(&node, now), now);
    let mut report = Report::new(archive);
    collect::all(&node, metrics_port, &mut report)?;
    report.finish()
}

/// Returns the name of the node; empty if it is unknown.
fn node() -> String {
    let name = std::env::var("NODE_NAME")
        .ok()
        .filter(|name| !name.is_empty());
    name.or_else(|| sysctl::read("kernel/hostname").ok()?)
        .unwrap_or_default()
}

/// Returns the name of the archive's folder.
fn folder(node: &str, now: SystemTime) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let node: String = node.chars().filter(|c| is_plain(*c)).collect();
    let at = jiff::Timestamp::try_from(now).unwrap_or_default();
    format!("braid-sysdump-{node}-{}", at.strftime("%Y%m%dT%H%M%SZ"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn folder_has_node_and_time() {
        let at = UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        assert_eq!(
            folder("worker-1.example/../x", at),
            "braid-sysdump-worker-1.example..x-20261118T110640Z"
        );
    }
}
