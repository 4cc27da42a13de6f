//! The user's own `kubectl`, which has the contexts and credentials.

use super::text::printable;
use crate::entry::signal;
use clap::Args;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

const KUBECTL: &str = "kubectl";
/// The agent's container.
pub(super) const CONTAINER: &str = "agent";
/// The program in the agent's image.
const PROGRAM: &str = "/braid";
/// Most bytes of an answer. The rest is not read.
pub(super) const MOST_BYTES: u64 = 64 << 20;
/// Interval in which a wait looks for a signal.
const POLL: Duration = Duration::from_millis(50);

/// Options that are passed on to kubectl.
#[derive(Debug, Clone, Args)]
pub(super) struct Kubectl {
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Path of the kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// Namespace of the agents' pods
    #[arg(short, long, default_value = "kube-system")]
    namespace: String,
    /// Seconds until a node counts as one that does not answer
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// Output of a kubectl that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) has_succeeded: bool,
    pub(super) stdout: String,
    /// kubectl's words, on one line.
    pub(super) words: String,
}

impl Kubectl {
    /// Longest time of one request.
    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Lists the pods with these labels as JSON.
    pub(super) fn pods(&self, labels: &str) -> Result<String, String> {
        let mut command = self.command();
        command.args(["get", "pods", "-o", "json", "-l", labels]);
        command.args(["--namespace", &self.namespace]);
        self.read(command)
    }

    /// Lists the names of the nodes with these labels, one per line.
    pub(super) fn nodes(&self, labels: &str) -> Result<String, String> {
        let mut command = self.command();
        let names = "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}";
        command.args(["get", "nodes", "-l", labels, "-o", names]);
        self.read(command)
    }

    /// Returns a command that runs the program in the container of an agent's pod, which is named by
    /// its namespace and name.
    pub(super) fn exec(
        &self,
        (namespace, pod): (&str, &str),
        options: &[&str],
        words: &[&str],
    ) -> Command {
        let mut command = self.command();
        command.arg("exec").args(options);
        command.args(["--namespace", namespace, pod]);
        command.args(["--container", CONTAINER, "--", PROGRAM]);
        command.args(words);
        command
    }

    fn command(&self) -> Command {
        let mut command = Command::new(KUBECTL);
        for (option, value) in [
            ("--context", &self.context),
            ("--kubeconfig", &self.kubeconfig),
        ] {
            if let Some(value) = value {
                command.args([option, value]);
            }
        }
        command
    }

    fn read(&self, command: Command) -> Result<String, String> {
        let answer = run(command, self.limit())?;
        if answer.has_succeeded {
            Ok(answer.stdout)
        } else {
            Err(format!("kubectl: {}", answer.words))
        }
    }
}

/// Runs kubectl until it ends. Kills it after `limit`, or if a signal was recorded.
pub(super) fn run(mut command: Command, limit: Duration) -> Result<Answer, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(&mut command)?;
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let end = Instant::now() + limit;
    let outputs = until(&stdout, end).and_then(|out| Ok((out, until(&stderr, end)?)));
    if outputs.is_err() {
        // kubectl may have ended already.
        let _ = child.kill();
    }
    let status = child
        .wait()
        .map_err(|err| format!("wait for kubectl: {err}"))?;
    let (stdout, stderr) = outputs.map_err(|()| match signal::noted() {
        Some(signal) => format!("interrupted by signal {signal}"),
        None => format!("no answer within {} s", limit.as_secs()),
    })?;
    Ok(Answer {
        has_succeeded: status.success(),
        stdout,
        words: one_line(&stderr),
    })
}

/// Starts kubectl.
pub(super) fn spawn(command: &mut Command) -> Result<Child, String> {
    command
        .spawn()
        .map_err(|err| format!("start {KUBECTL}: {err}"))
}

/// Reads an output to its end on a thread, so that a wait can end earlier.
pub(super) fn reader(output: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(output) = output {
            // An interrupted output is as good as a short one: kubectl's exit status counts.
            let _ = output.take(MOST_BYTES).read_to_end(&mut bytes);
        }
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receive
}

fn until(output: &Receiver<String>, end: Instant) -> Result<String, ()> {
    loop {
        match output.recv_timeout(POLL) {
            Ok(text) => return Ok(text),
            Err(RecvTimeoutError::Disconnected) => return Err(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if signal::noted().is_some() || Instant::now() > end {
            return Err(());
        }
    }
}

/// Joins the lines of a text.
pub(super) fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let filled: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    printable(&filled.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn answer_has_both_outputs_and_the_status() {
        let answer = run(
            shell("echo out; echo a >&2; echo >&2; echo b >&2; exit 3"),
            POLL * 100,
        );
        let expected = Answer {
            has_succeeded: false,
            stdout: "out\n".to_owned(),
            words: "a; b".to_owned(),
        };
        assert_eq!(answer, Ok(expected));
    }

    #[test]
    fn a_kubectl_that_does_not_end_is_killed_at_the_limit() {
        let start = Instant::now();
        let answer = run(shell("exec sleep 100"), Duration::from_secs(1));
        assert_eq!(answer, Err("no answer within 1 s".to_owned()));
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
