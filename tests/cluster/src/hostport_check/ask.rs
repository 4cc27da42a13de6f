//! Requests to an address and port, from a pod, a node or a host outside the cluster.

use anyhow::{Context, Result, bail};
use braid_testbed::sh;
use braid_testbed::{CONTROL_PLANE, Cluster, Node, in_netns};
use std::fmt::{Display, Formatter};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

/// Protocol of a request.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

impl Display for Protocol {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// Path of Debian's Python. Pods mount the folder that contains it: see [`super::manifests`].
pub(super) const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = include_str!("ask.py");

/// Client that sends a request.
#[derive(Clone, Copy)]
pub(super) enum Asker<'a> {
    /// A host outside the cluster: the control plane's network namespace, which is not a node.
    Outside,
    Node(Node),
    Pod(&'a str),
}

impl Display for Asker<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Outside => f.write_str("outside"),
            Self::Node(node) => write!(f, "{node}"),
            Self::Pod(name) => write!(f, "pod {name}"),
        }
    }
}

pub(super) struct Question<'a> {
    pub(super) asker: Asker<'a>,
    /// Source address of the request. With `None` the kernel chooses it.
    pub(super) source: Option<Ipv4Addr>,
    pub(super) protocol: Protocol,
    pub(super) to: SocketAddrV4,
}

impl Display for Question<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} from {}", self.protocol, self.to, self.asker)?;
        self.source
            .map_or(Ok(()), |source| write!(f, " bound to {source}"))
    }
}

#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) pod: String,
    /// The client's address as the pod saw it.
    pub(super) client: Ipv4Addr,
}

impl Question<'_> {
    /// Sends `times` requests, each from a new source port. Fails if a request gets no answer.
    pub(super) fn ask(&self, cluster: &Cluster, times: u32) -> Result<Vec<Answer>> {
        let source = self
            .source
            .map(|source| source.to_string())
            .unwrap_or_default();
        let (protocol, address, port) = (
            self.protocol.to_string(),
            self.to.ip().to_string(),
            self.to.port().to_string(),
        );
        let arguments = [
            "-c",
            SCRIPT,
            &protocol,
            &source,
            &address,
            &port,
            &times.to_string(),
        ];
        let said = sh::read(self.python(cluster)?.args(arguments))?;
        parse(&said).with_context(|| self.to_string())
    }

    fn python(&self, cluster: &Cluster) -> Result<Command> {
        Ok(match self.asker {
            Asker::Outside => in_netns(CONTROL_PLANE, PYTHON),
            Asker::Node(node) => cluster.on(node, [PYTHON])?,
            Asker::Pod(name) => cluster.kubectl(["exec", name, "--", PYTHON]),
        })
    }
}

fn parse(said: &str) -> Result<Vec<Answer>> {
    let answer = |(at, line): (usize, &str)| {
        if let Some((pod, client)) = line
            .strip_prefix("answer ")
            .and_then(|answer| answer.split_once(' '))
        {
            let client = client
                .parse()
                .with_context(|| format!("client {client:?} in the answer of {pod}"))?;
            return Ok(Answer {
                pod: pod.to_owned(),
                client,
            });
        }
        bail!(
            "request {}: no answer: {}",
            at + 1,
            line.trim_start_matches("failed ")
        )
    };
    said.lines().enumerate().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_an_answer_or_the_error_has_the_reason() {
        let answer = |pod: &str| Answer {
            pod: pod.into(),
            client: Ipv4Addr::new(10, 99, 0, 1),
        };
        let answers = parse("answer a 10.99.0.1\nanswer b 10.99.0.1\n").expect("answers");
        assert_eq!(answers, [answer("a"), answer("b")]);
        let error = parse("answer a 10.99.0.1\nfailed timed out\n").expect_err("no answer");
        assert_eq!(error.to_string(), "request 2: no answer: timed out");
    }
}
