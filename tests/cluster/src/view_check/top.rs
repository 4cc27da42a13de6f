//! Rates during a transfer that a limit slows down, and processes after an end by a signal.

use super::view::{FREE, LIMIT, LIMITED, View, each, parse, text};
use crate::limit_check::EGRESS;
use anyhow::{Context, Result, ensure};
use braid_testbed::{sh, wait};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::process::{Child, Stdio};

/// Argument of the programs that run in the agents' containers.
const MARK: &str = "--until-eof";
/// Accepted share of the limit. A busy machine can slow a transfer down.
const SHARES: RangeInclusive<f64> = 0.6..=1.15;
/// Largest number of tables until one has the accepted rates.
const TRIES: usize = 5;

pub(super) fn check(view: &View<'_>) -> Result<()> {
    let mut transfer = Transfer::start(view)?;
    let rates = rates(view);
    let table = view.read("top -d 2 --sort tx");
    transfer.end();
    rates?;
    let table = table?;
    let rows: Vec<&str> = table.lines().collect();
    ensure!(rows[0].starts_with("NAMESPACE/POD"), "{table}");
    ensure!(
        rows[1].contains(LIMITED) && rows[1].contains("20M/10M"),
        "{table}"
    );
    println!("kubectl braid top:\n{table}");
    for signal in ["INT", "TERM", "KILL"] {
        ends(view, signal).with_context(|| format!("after SIG{signal}"))?;
    }
    println!("no process is left after SIGINT, SIGTERM and SIGKILL");
    Ok(())
}

/// Downloads from the limited pod, again and again.
struct Transfer(Child);

impl Transfer {
    fn start(view: &View<'_>) -> Result<Self> {
        let address = ["get", "pod", LIMITED, "-o", "jsonpath={.status.podIP}"];
        let address = sh::read(&mut view.cluster.kubectl(address))?;
        let script = format!(
            "while [ -e /tmp/index.html ]; do wget -qO /dev/null http://{}/load; done",
            address.trim()
        );
        let mut command = view
            .cluster
            .kubectl(["exec", FREE, "--", "/bin/sh", "-c", &script]);
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .context("start kubectl")?;
        Ok(Self(child))
    }

    /// Ends kubectl. The script ends with its pod.
    fn end(&mut self) {
        // kubectl may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Compares the rates of both pods with the limit.
fn rates(view: &View<'_>) -> Result<()> {
    let mut last = String::new();
    for _ in 0..TRIES {
        let lines = view.read("top -d 2 --count 2 -o json")?;
        let document = parse(lines.lines().last().unwrap_or_default())?;
        let sent = rate(&document, LIMITED, "tx_bits_per_second")?;
        let received = rate(&document, FREE, "rx_bits_per_second")?;
        let shares = [sent, received].map(|rate| rate / f64::from(EGRESS.1));
        last = format!(
            "{LIMITED} sends {sent}, {FREE} receives {received} bit/s of {}",
            EGRESS.1
        );
        if shares.iter().all(|share| SHARES.contains(share)) {
            println!("kubectl braid top: {last}");
            return Ok(());
        }
    }
    anyhow::bail!("{TRIES} times: {last}")
}

fn rate(document: &Value, pod: &str, key: &str) -> Result<f64> {
    let pod = format!("default/{pod}");
    for node in each(&document["nodes"]) {
        for one in each(&node["interfaces"]) {
            if text(&one["pod"]) == pod && one["ifname"] == "eth0" {
                return one[key].as_f64().context("a rate is not a number");
            }
        }
    }
    anyhow::bail!("no traffic of {pod} in {document}")
}

/// Ends a running `kubectl braid top` by a signal. Fails if a process is left, here or in a
/// container.
fn ends(view: &View<'_>, signal: &str) -> Result<()> {
    let mut command = view.command("top -d 1 --count 1000");
    let mut top = command
        .stdout(Stdio::piped())
        .spawn()
        .context("start kubectl")?;
    let stdout = top.stdout.take().context("kubectl has no output")?;
    let first = BufReader::new(stdout).lines().next();
    first.context("no table")?.context("read a table")?;
    // One kubectl and one program on each node.
    let (count, expected) = (marked().len(), 2 * view.cluster.nodes()?.len());
    sh::run(&mut sh::cmd(
        "kill",
        [format!("-{signal}"), top.id().to_string()],
    ))?;
    top.wait().context("wait for kubectl")?;
    ensure!(count == expected, "{count} processes ran, not {expected}");
    wait::eventually(LIMIT, || {
        let left = marked();
        ensure!(left.is_empty(), "left: {left:?}");
        Ok(())
    })
}

/// Returns the command lines of running processes with [`MARK`], of all containers.
fn marked() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        // A process may end meanwhile.
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(MARK) {
            found.push(line);
        }
    }
    found
}
