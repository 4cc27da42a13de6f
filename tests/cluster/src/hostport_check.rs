//! Check that hostPort and Services work as Kubernetes' conformance tests require, and that they
//! leave nothing behind.

mod ask;
mod changes;
mod kinds;
mod manifests;
mod services;

use crate::leftovers::{self, Traces};
use crate::pods;
use anyhow::{Context, Result, bail, ensure};
use ask::{Asker, Protocol, Question};
use braid_testbed::sh;
use braid_testbed::wait;
use braid_testbed::{Cluster, Node};
use manifests::APP;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

/// Host port of all three pods, as in Kubernetes' end-to-end test for pods "with same hostPort but
/// different hostIP and protocol".
const PORT: u16 = 54323;
const KINDS: &str = "service,endpointslice,pod";
const LOOPBACK: &str = "host-port-loopback";
const TCP: &str = "host-port-tcp";
const UDP: &str = "host-port-udp";
/// Longest time until kube-proxy has started, and until deleted objects are gone from a node.
const LIMIT: Duration = Duration::from_secs(20);

/// Creates pods with host ports and Services, sends requests from every kind of client, deletes the
/// objects, and looks for leftovers. After a failure the objects stay for inspection.
pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    let [node, other, ..] = cluster.nodes()?[..] else {
        bail!("the cluster has one node, and this check needs two")
    };
    let nodes = [node, other];
    for node in nodes {
        await_kube_proxy(cluster, node)?;
    }
    pods::delete(cluster, KINDS, APP)?; // what an earlier run left to look at
    let start = Instant::now();
    cluster.create(
        &nodes
            .into_iter()
            .flat_map(|at| pods_on(at, node))
            .collect::<Vec<_>>(),
    )?;
    pods::await_ready(cluster, APP)?;
    println!(
        "three pods with the host port {PORT} and six without Ready after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    check_host_ports(cluster, nodes)?;
    services::check(cluster, nodes)?;
    kinds::check(cluster, nodes)?;
    changes::check(cluster, nodes)?;
    check_host_ports(cluster, nodes).context("beside Services")?;

    let traces = [
        Traces::of(cluster, node, APP)?,
        Traces::of(cluster, other, APP)?,
    ];
    pods::delete(cluster, KINDS, APP)?;
    wait::eventually(LIMIT, || {
        for (node, traces) in nodes.iter().zip(&traces) {
            leftovers::ensure_none(cluster, *node, traces)?;
        }
        Ok(())
    })?;
    println!(
        "nothing left on both nodes: {}, elements for host ports",
        leftovers::KINDS
    );
    Ok(())
}

pub(crate) fn await_kube_proxy(cluster: &Cluster, node: Node) -> Result<()> {
    let has_table =
        || sh::read(&mut cluster.on(node, ["nft", "list", "table", "ip", "kube-proxy"])?);
    wait::eventually(LIMIT, has_table)
        .with_context(|| {
            format!(
                "{node} has no rules of kube-proxy: `cargo xtask cluster up --kube-proxy` starts it"
            )
        })
        .map(drop)
}

/// Returns the pods to create on node `at`. They include the pods with host ports only if `at` is
/// `node`.
fn pods_on(at: Node, node: Node) -> Vec<serde_json::Value> {
    let mut pods: Vec<_> = manifests::backend_pods(at)
        .chain([manifests::client_pod(at)])
        .collect();
    if at == node {
        let own = node.address();
        let host_ports = [
            (LOOPBACK, Ipv4Addr::LOCALHOST, Protocol::Tcp),
            (TCP, own, Protocol::Tcp),
            (UDP, own, Protocol::Udp),
        ];
        pods.extend(
            host_ports.map(|(name, ip, protocol)| {
                manifests::host_port_pod(name, node, ip, protocol, PORT)
            }),
        );
    }
    pods
}

/// Checks that each of the three pods with host ports answers at its host IP and protocol, for
/// every client.
fn check_host_ports(cluster: &Cluster, [node, other]: [Node; 2]) -> Result<()> {
    let own = node.address();
    let at = |address| SocketAddrV4::new(address, PORT);
    for source in [Some(own), None] {
        let (asker, protocol, to) = (Asker::Node(node), Protocol::Tcp, at(Ipv4Addr::LOCALHOST));
        expect(
            cluster,
            &Question {
                asker,
                source,
                protocol,
                to,
            },
            LOOPBACK,
        )?;
    }
    println!(
        "tcp {} is forwarded to {LOOPBACK}, from the address of {node} and from 127.0.0.1",
        at(Ipv4Addr::LOCALHOST)
    );
    let clients = [node, other].map(manifests::client);
    for (pod, protocol) in [(TCP, Protocol::Tcp), (UDP, Protocol::Udp)] {
        let [near, far] = clients.each_ref().map(|name| Asker::Pod(name));
        for asker in [
            Asker::Node(node),
            Asker::Node(other),
            Asker::Outside,
            near,
            far,
            Asker::Pod(pod),
        ] {
            expect(
                cluster,
                &Question {
                    asker,
                    source: None,
                    protocol,
                    to: at(own),
                },
                pod,
            )?;
        }
        println!(
            "{protocol} {} is forwarded to {pod}, from both nodes, outside, a pod of each node, and itself",
            at(own)
        );
    }
    Ok(())
}

fn expect(cluster: &Cluster, question: &Question<'_>, pod: &str) -> Result<()> {
    let answers = question
        .ask(cluster, 1)
        .with_context(|| format!("host port of {pod}"))?;
    let answered = answers.first().map_or("no pod", |answer| &answer.pod);
    ensure!(
        answered == pod,
        "host port of {pod}: {question}: {answered} answered"
    );
    Ok(())
}
