//! Traffic between two pods: a TCP connection that lasts for the whole check, and pings.

use super::manifests;
use crate::networks_check::attached;
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
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
    connection.sendall(b'x' * 64)
    received = connection.recv(4096)
    if not received:
        sys.exit('the server closed the connection')
    time.sleep(0.02)
";

/// A TCP connection between two pods. Dropping this value ends it.
pub(crate) struct Stream {
    server: Child,
    client: Child,
}

impl Stream {
    pub(crate) fn start(cluster: &Cluster, client: Node, server: Node) -> Result<Self> {
        let address = attached::address(cluster, &manifests::end_of(server), 0)?;
        let command = |node, words: &[&str]| {
            attached::command(cluster, node, &manifests::end_of(node), words)
        };
        Self::between(
            |words| command(client, words),
            |words| command(server, words),
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
        let spawn = |mut python: Command| {
            python
                .stderr(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .context("start python3")
        };
        let mut server = spawn(server(&["python3", "-c", SERVER])?)?;
        let client = wait::eventually(LIMIT, || {
            let words = ["python3", "-c", CLIENT, address, &port.to_string()];
            let mut client = spawn(client(&words)?)?;
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
        })
    }

    /// Fails if the connection has ended.
    pub(crate) fn ensure_alive(&mut self) -> Result<()> {
        ensure_runs(&mut self.client).context("the connection between pods")
    }
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
    pub(crate) fn start(cluster: &Cluster, client: Node, server: Node) -> Result<Self> {
        let address = attached::address(cluster, &manifests::end_of(server), 0)?;
        let ping = ["ping", "-n", "-i", "0.02", &address];
        Self::run(attached::command(
            cluster,
            client,
            &manifests::end_of(client),
            &ping,
        )?)
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
