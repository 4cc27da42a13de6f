//! A plugin call, timed from the caller's side.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Name of the interface in each pod.
pub(crate) const IFNAME: &str = "eth0";

/// Environment of a call.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// `CNI_COMMAND`.
    pub(crate) verb: &'a str,
    /// `CNI_PATH`: the directory that holds the plugin.
    pub(crate) dir: &'a Path,
    /// `CNI_CONTAINERID`.
    pub(crate) container: &'a str,
    /// `CNI_NETNS`.
    pub(crate) netns: &'a Path,
    /// `CNI_ARGS`.
    pub(crate) args: &'a str,
    /// File for the trace of the call and its children; `None` runs without strace.
    pub(crate) trace: Option<&'a Path>,
}

impl Call<'_> {
    /// Runs `plugin`; returns its output, and the time from before its start until it was reaped.
    pub(crate) fn run(&self, plugin: &str, stdin: &[u8]) -> Result<(Vec<u8>, Duration)> {
        let mut command = self.command(plugin);
        let start = Instant::now();
        let output = feed(&mut command, stdin).with_context(|| format!("run {command:?}"))?;
        let took = start.elapsed();
        if !output.status.success() {
            bail!("{} {plugin}: {}", self.verb, complaint(&output));
        }
        Ok((output.stdout, took))
    }

    fn command(&self, plugin: &str) -> Command {
        let program = self.dir.join(plugin);
        let mut command = match self.trace {
            None => Command::new(program),
            Some(file) => {
                let mut strace = Command::new("strace");
                strace.args([
                    "--follow-forks",
                    "--quiet=all",
                    "--signal=none",
                    "--string-limit=1",
                    "--output",
                ]);
                strace.arg(file).arg(program);
                strace
            }
        };
        command
            .env("CNI_COMMAND", self.verb)
            .env("CNI_CONTAINERID", self.container)
            .env("CNI_NETNS", self.netns)
            .env("CNI_IFNAME", IFNAME)
            .env("CNI_ARGS", self.args)
            .env("CNI_PATH", self.dir);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

fn feed(command: &mut Command, stdin: &[u8]) -> io::Result<Output> {
    let mut child = command.spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        match pipe.write_all(stdin) {
            // The plugin ended without reading; its status shows the reason.
            Err(err) if err.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
    }
    child.wait_with_output()
}

/// Returns the plugin's error message: the CNI error object, else its raw output.
fn complaint(output: &Output) -> String {
    let error: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let text = |key: &str| {
        error
            .get(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    match (text("msg"), text("details")) {
        (Some(msg), Some(details)) => format!("code {}: {msg}; {details}", error["code"]),
        (Some(msg), None) => format!("code {}: {msg}", error["code"]),
        (None, _) => {
            let written = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
            format!(
                "{}: {}",
                output.status,
                String::from_utf8_lossy(&written).trim()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    fn failed(stdout: &str, stderr: &str) -> String {
        let status = std::process::ExitStatus::from_raw(1 << 8);
        complaint(&Output {
            status,
            stdout: stdout.into(),
            stderr: stderr.into(),
        })
    }

    #[test]
    fn error_object_is_quoted_with_code_and_details() {
        assert_eq!(
            failed(r#"{"code": 999, "msg": "no bridge"}"#, "noise"),
            "code 999: no bridge"
        );
        assert_eq!(
            failed(r#"{"code": 4, "msg": "bad", "details": "why"}"#, ""),
            "code 4: bad; why"
        );
    }

    #[test]
    fn plugin_without_error_object_is_quoted_as_written() {
        assert_eq!(failed("", "panic: nil\n"), "exit status: 1: panic: nil");
    }
}
