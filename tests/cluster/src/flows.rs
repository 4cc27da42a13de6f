//! Traffic between two pods: a TCP connection that lasts for the whole check, and pings.

use crate::networks_check::attached;
use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
/// Time before and after a disturbance in which the ping runs.
const AROUND: Duration = Duration::from_secs(1);
/// Port of the server.
pub(crate) const PORT: u16 = 9000;
const SERVER: &str = "
import socket
listener = socket.create_server(('', 9000))
while True:
    connection, _ = listener.accept()
    print('accepted', flush=True)
    while data := connection.recv(4096):
        connection.sendall(data)
";
const CLIENT: &str = "
import socket, sys, time
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
connection.settimeout(30)
while True:
    sent = time.monotonic()
    connection.sendall(b'x' * 64)
    received = connection.recv(4096)
    if not received:
        sys.exit('the server closed the connection')
    print(f'{time.monotonic() - sent:.6f}', flush=True)
    time.sleep(0.02)
";

/// A pod at an end of the traffic. Each check has its own.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) app: &'static str,
    pub(crate) node: Node,
}

impl End {
    pub(crate) fn name(self) -> String {
        format!("{}-end-{}", self.app, self.node)
    }

    /// Returns the pod.
    pub(crate) fn pod(self) -> Value {
        pods::on(
            &self.name(),
            self.app,
            self.node,
            pods::spec("exec sleep 1000000"),
        )
    }

    /// Returns the address of the running pod in the default network.
    fn address(self, cluster: &Cluster) -> Result<String> {
        let get = ["get", "pod", &self.name(), "-o=jsonpath={.status.podIP}"];
        let address = sh::read(&mut cluster.kubectl(get))?;
        ensure!(!address.is_empty(), "{} has no address", self.name());
        Ok(address)
    }

    /// Returns a command that runs `words` in the pod's network namespace.
    fn command(self, cluster: &Cluster, words: &[&str]) -> Result<Command> {
        attached::command(cluster, self.node, &self.name(), words)
    }
}

/// A TCP connection between two pods, with a request every 20 ms. Dropping this value ends it.
pub(crate) struct Stream {
    server: Child,
    client: Child,
    /// Seconds until each answer, one a line.
    answers: tempfile::NamedTempFile,
    /// Number of answers that [`Stream::slowest`] has judged.
    judged: usize,
}

impl Stream {
    pub(crate) fn start(cluster: &Cluster, client: End, server: End) -> Result<Self> {
        let address = server.address(cluster)?;
        Self::between(
            |words| client.command(cluster, words),
            |words| server.command(cluster, words),
            (&address, PORT),
        )
    }

    /// Opens a connection to a server at this address and port. The functions return commands that
    /// run in the network namespaces of the client and of the server.
    pub(crate) fn between(
        client: impl Fn(&[&str]) -> Result<Command>,
        server: impl Fn(&[&str]) -> Result<Command>,
        (address, port): (&str, u16),
    ) -> Result<Self> {
        let answers = tempfile::NamedTempFile::new().context("make a file of answers")?;
        let spawn = |mut python: Command, out: Stdio| {
            python
                .stderr(Stdio::piped())
                .stdout(out)
                .spawn()
                .context("start python3")
        };
        let mut server = spawn(server(&["python3", "-c", SERVER])?, Stdio::null())?;
        let client = wait::eventually(LIMIT, || {
            let words = ["python3", "-c", CLIENT, address, &port.to_string()];
            let mut client = spawn(client(&words)?, Stdio::from(answers.reopen()?))?;
            thread::sleep(AROUND);
            ensure_runs(&mut client)?;
            Ok(client)
        });
        if client.is_err() {
            end(&mut server);
        }
        Ok(Self {
            server,
            client: client?,
            answers,
            judged: 0,
        })
    }

    /// Fails if the connection has ended.
    pub(crate) fn ensure_alive(&mut self) -> Result<()> {
        ensure_runs(&mut self.client).context("the connection between pods")
    }

    /// Returns the longest time until an answer since the last call. Fails if the connection has
    /// ended, or has no new answer.
    pub(crate) fn slowest(&mut self) -> Result<Duration> {
        let before = fs::read_to_string(self.answers.path())?.lines().count();
        // The request under way may be the slowest.
        wait::until("the connection has an answer", LIMIT, || {
            self.ensure_alive()?;
            Ok(fs::read_to_string(self.answers.path())?.lines().count() > before + 1)
        })?;
        let said = fs::read_to_string(self.answers.path())?;
        let whole = &said[..said.rfind('\n').map_or(0, |end| end + 1)];
        let slowest = slowest(whole.lines().skip(self.judged));
        self.judged = whole.lines().count();
        slowest
    }
}

/// Returns the longest of times in seconds.
fn slowest<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    for line in lines {
        let seconds = line.parse().with_context(|| format!("parse {line:?}"))?;
        slowest = slowest.max(Duration::try_from_secs_f64(seconds)?);
    }
    Ok(slowest)
}

fn ensure_runs(child: &mut Child) -> Result<()> {
    if let Some(status) = child.try_wait()? {
        let mut said = String::new();
        if let Some(stderr) = &mut child.stderr {
            stderr.read_to_string(&mut said)?;
        }
        let said = said.lines().last().unwrap_or_default();
        ensure!(false, "ended with {status}: {said}");
    }
    Ok(())
}

impl Drop for Stream {
    fn drop(&mut self) {
        end(&mut self.client);
        end(&mut self.server);
    }
}

fn end(child: &mut Child) {
    // The child may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// A ping, for example between two pods.
pub(crate) struct Ping {
    child: Child,
    replies: tempfile::NamedTempFile,
}

impl Ping {
    pub(crate) fn start(cluster: &Cluster, client: End, server: End) -> Result<Self> {
        let address = server.address(cluster)?;
        let ping = ["ping", "-n", "-i", "0.02", &address];
        Self::run(client.command(cluster, &ping)?)
    }

    /// Runs a command of ping.
    pub(crate) fn run(mut ping: Command) -> Result<Self> {
        let replies = tempfile::NamedTempFile::new().context("make a file of replies")?;
        let child = ping
            .stdout(replies.reopen()?)
            .spawn()
            .context("start ping")?;
        thread::sleep(AROUND);
        Ok(Self { child, replies })
    }

    /// Ends the ping and returns the number of its packets. Fails if one is lost.
    pub(crate) fn end(mut self) -> Result<usize> {
        thread::sleep(AROUND);
        sh::run(&mut sh::cmd("kill", ["-INT", &self.child.id().to_string()]))?;
        self.child.wait()?;
        let said = fs::read_to_string(self.replies.path())?;
        let (count, lost) = missing(&said);
        ensure!(count > 0, "ping had no answer: {said}");
        ensure!(
            lost.is_empty(),
            "{} of {count} packets are lost: {lost:?}",
            lost.len()
        );
        Ok(count)
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Returns the number of requests, and the numbers of those without an answer. The last request may
/// be on its way when the ping ends.
fn missing(said: &str) -> (usize, Vec<usize>) {
    let mut answered = BTreeSet::new();
    for line in said.lines() {
        let number = line.split("icmp_seq=").nth(1);
        let number = number.and_then(|rest| rest.split(' ').next());
        let number = number.and_then(|number| number.parse::<usize>().ok());
        answered.extend(number.filter(|_| line.contains(" bytes from ")));
    }
    let last = answered.last().copied().unwrap_or_default();
    let sent = said.lines().find_map(|line| {
        let (number, _) = line.split_once(" packets transmitted")?;
        number.parse::<usize>().ok()
    });
    let sent = sent.unwrap_or_default().saturating_sub(1).max(last);
    let lost = (1..=sent).filter(|number| !answered.contains(number));
    (sent, lost.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_answer_is_that_of_the_longest_time() {
        let found = slowest(["0.000123", "1.500000", "0.2"].into_iter()).expect("times");
        assert_eq!(found, Duration::from_millis(1500));
        assert!(slowest(["x"].into_iter()).is_err());
    }

    #[test]
    fn a_request_without_an_answer_is_lost() {
        let said = "64 bytes from 10.244.2.2: icmp_seq=1 ttl=62 time=0.1 ms\n\
                    From 10.99.0.11 icmp_seq=2 Destination Host Unreachable\n\
                    64 bytes from 10.244.2.2: icmp_seq=4 ttl=62 time=0.1 ms\n";
        assert_eq!(missing(said), (4, vec![2, 3]));
        let silent =
            format!("{said}\n7 packets transmitted, 2 received, 71% packet loss, time 6ms\n");
        assert_eq!(missing(&silent), (6, vec![2, 3, 5, 6]));
        let last =
            format!("{said}\n5 packets transmitted, 2 received, 60% packet loss, time 4ms\n");
        assert_eq!(
            missing(&last),
            (4, vec![2, 3]),
            "the last one is on its way"
        );
    }
}
