//! Traffic in each network of a pod: between nodes, through a host port, and within a limit.

use super::attached::address;
use super::{create, end, manifests};
use crate::limit_check::{self, EGRESS, INGRESS};
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{CONTROL_PLANE, Cluster, LAN as ROUTER, Node, in_netns, wait};
use std::process::Command;
use std::time::Duration;

/// Names of the pods with all networks: one on each node.
const SERVERS: [&str; 2] = ["networks-a", "networks-b"];
const NEIGHBOUR: &str = "networks-neighbour";
/// Longest wait for the answer to a request.
const ANSWER: Duration = Duration::from_secs(5);
/// Index of the default network in a pod's status.
const DEFAULT: usize = 0;
const LAN: usize = 1;
const SERVED: usize = 2;

pub(super) fn check(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let [a, b] = SERVERS;
    let [near, far] = nodes;
    let pods = [
        manifests::server(a, 1, near),
        manifests::server(b, 2, far),
        manifests::neighbour(NEIGHBOUR, near),
    ];
    let seconds = create(cluster, &pods)?;
    println!("three pods with networks Ready after {seconds:.1} s");
    for (what, at) in [("default network", DEFAULT), ("macvlan", LAN)] {
        for (asker, server) in [(a, b), (b, a)] {
            let place = Place::Pod(asker);
            expect(cluster, &place, &address(cluster, server, at)?, server)
                .with_context(|| what.to_owned())?;
        }
        println!("{what}: both pods answer each other, from node to node");
    }
    for (number, node, server) in [(1, near, a), (2, far, b)] {
        let other = if node == near { far } else { near };
        let asker = if server == a { b } else { a };
        let to = format!("{}:{}", node.address(), manifests::host_port(number));
        for place in [
            Place::Outside,
            Place::Node(node),
            Place::Node(other),
            Place::Pod(asker),
        ] {
            expect(cluster, &place, &to, server).context("host port")?;
        }
    }
    println!("host ports reach the pods from outside, both nodes and a pod of the other node");
    let (limited, free) = (
        address(cluster, a, SERVED)?,
        address(cluster, NEIGHBOUR, 1)?,
    );
    limit_check::check(cluster, NEIGHBOUR, (a, limited.as_str()), "sends", EGRESS)?;
    limit_check::check(cluster, a, (NEIGHBOUR, free.as_str()), "receives", INGRESS)?;
    end(cluster, nodes)
}

/// Client that sends a request.
pub(super) enum Place<'a> {
    /// A host outside the cluster: the control plane's network namespace, which is not a node.
    Outside,
    /// The router on the LANs of the nodes' `eth1` and `eth2`.
    Lan,
    Node(Node),
    Pod(&'a str),
}

impl Place<'_> {
    fn name(&self) -> String {
        match self {
            Self::Outside => "outside".to_owned(),
            Self::Lan => "the lan's router".to_owned(),
            Self::Node(node) => node.to_string(),
            Self::Pod(name) => (*name).to_owned(),
        }
    }

    fn busybox(&self, cluster: &Cluster) -> Result<Command> {
        Ok(match self {
            Self::Outside => in_netns(CONTROL_PLANE, "busybox"),
            Self::Lan => in_netns(ROUTER, "busybox"),
            Self::Node(node) => cluster.on(*node, ["busybox"])?,
            Self::Pod(name) => cluster.kubectl(["exec", name, "--", "busybox"]),
        })
    }
}

/// Fails unless the pod `server` answers a request from `place` to the address `to`.
pub(super) fn expect(cluster: &Cluster, place: &Place<'_>, to: &str, server: &str) -> Result<()> {
    // `timeout`, because `wget -T` crashes in Debian 12's static busybox.
    let seconds = wait::on_this_machine(ANSWER).as_secs().to_string();
    let wget = [
        "timeout",
        &seconds,
        "busybox",
        "wget",
        "-qO-",
        &format!("http://{to}/"),
    ];
    let answer = sh::read(place.busybox(cluster)?.args(wget))
        .with_context(|| format!("from {}", place.name()))?;
    ensure!(
        answer.trim() == server,
        "from {}: {to} is {answer:?} instead of {server}",
        place.name()
    );
    Ok(())
}
