//! TCP throughput by iperf3.

use crate::daemon::Daemon;
use crate::node::in_netns;
use crate::traffic::{End, Way};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = "iperf3";
/// Longest wait for the server, in milliseconds.
const PATIENCE_MS: &str = "5000";

/// Result of a run.
#[derive(Debug, PartialEq)]
pub(super) struct Stream {
    pub(super) gbit_per_s: f64,
    /// Payload that the server received.
    pub(super) bytes: u64,
}

/// Returns the version of iperf3.
pub(super) fn version() -> Result<String> {
    let output = Command::new(PROGRAM).arg("--version").output();
    let output = output.context("run iperf3, Debian's package iperf3")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default();
    Ok(line.trim_start_matches("iperf ").to_owned())
}

/// Starts a server at one end.
pub(super) fn serve(end: &End<'_>) -> Result<Daemon> {
    let args = ["--server", "--bind", &end.address.to_string()];
    Daemon::start_in(end.netns, Path::new(PROGRAM), &args)
}

/// Sends one stream to the server for some seconds.
pub(super) fn measure(way: &Way<'_>, seconds: u16) -> Result<Stream> {
    let [from, to] = [way.from, way.to].map(|end| end.address.to_string());
    let seconds = seconds.to_string();
    let output = in_netns(way.from.netns, || {
        // The client ends with the thread that waits for it.
        let mut client = Command::new("setpriv");
        client.args(["--pdeathsig", "KILL", PROGRAM, "--json"]);
        client.args(["--client", &to, "--bind", &from, "--time", &seconds]);
        client.args(["--connect-timeout", PATIENCE_MS]);
        client.output().context("run iperf3")
    })?;
    parse(&output.stdout).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("iperf3: {}: {}", output.status, errors.trim())
    })
}

fn parse(text: &[u8]) -> Result<Stream> {
    let whole: Value = serde_json::from_slice(text).context("parse its output")?;
    if let Some(error) = whole["error"].as_str() {
        bail!("{error}");
    }
    let received = &whole["end"]["sum_received"];
    let rate = received["bits_per_second"].as_f64();
    Ok(Stream {
        gbit_per_s: rate.context("its output has no rate")? / 1e9,
        bytes: received["bytes"].as_u64().context("no bytes")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn received_bytes_count() {
        let sum = |bits: f64, bytes: u64| json!({"bits_per_second": bits, "bytes": bytes});
        let end = json!({"sum_sent": sum(3e9, 900), "sum_received": sum(2e9, 800)});
        let text = json!({"start": {}, "end": end}).to_string();
        let expected = Stream {
            gbit_per_s: 2.0,
            bytes: 800,
        };
        assert_eq!(parse(text.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn error_in_the_output_is_quoted() {
        let refused = json!({"end": {}, "error": "error - unable to connect"}).to_string();
        let parsed = parse(refused.as_bytes());
        assert_eq!(parsed.unwrap_err().to_string(), "error - unable to connect");
    }
}
