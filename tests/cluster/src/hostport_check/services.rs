//! Services through kube-proxy: requests from every node, to nodes with and without a local pod,
//! with and without session affinity.

use super::ask::{Answer, Asker, Question};
use super::{Protocol, manifests};
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{API_SERVER, Cluster, Node, wait};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Number of requests to a Service. Each request goes to the pods of either node with equal
/// probability. The probability that the pods of one node get no request is 2^-32.
const TIMES: u32 = 32;
/// Longest time until kube-proxy has written its rules. It writes them at most once a second.
const SYNC: Duration = Duration::from_secs(20);

const SPREAD: &str = "spread";
const LOCAL: &str = "local";
const STICKY: &str = "sticky";

/// A Service as the API server created it.
struct Service {
    name: &'static str,
    cluster_ip: Ipv4Addr,
    /// Node ports for TCP and for UDP.
    node_ports: [u16; 2],
}

/// Creates the Services, and sends requests to them from every kind of client. The pods of the
/// Services must already be Ready.
pub(super) fn check(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let manifests = [
        manifests::service(SPREAD, &[("externalTrafficPolicy", "Cluster")]),
        manifests::service(LOCAL, &[("externalTrafficPolicy", "Local")]),
        manifests::service(STICKY, &[("sessionAffinity", "ClientIP")]),
    ];
    cluster.create(&manifests)?;
    let [spread, local, sticky] = [SPREAD, LOCAL, STICKY].map(|name| Service::read(cluster, name));
    let (spread, local, sticky) = (spread?, local?, sticky?);
    for service in [&spread, &local, &sticky] {
        service.await_rules(cluster, nodes)?;
    }
    let clients = nodes.map(manifests::client);
    check_spread(cluster, &spread, nodes, &clients)?;
    check_local(cluster, &local, nodes)?;
    check_sticky(cluster, &sticky, nodes, &clients)
}

impl Service {
    fn read(cluster: &Cluster, name: &'static str) -> Result<Self> {
        let text = sh::read(&mut cluster.kubectl(["get", "service", name, "-o", "json"]))?;
        let service: Value =
            serde_json::from_str(&text).with_context(|| format!("parse the Service {name}"))?;
        let cluster_ip = service["spec"]["clusterIP"].as_str().unwrap_or_default();
        let node_port = |at: usize| {
            let port = service["spec"]["ports"][at]["nodePort"]
                .as_u64()
                .and_then(|port| port.try_into().ok());
            port.with_context(|| format!("the Service {name} has no node port"))
        };
        Ok(Self {
            name,
            cluster_ip: cluster_ip
                .parse()
                .with_context(|| format!("clusterIP {cluster_ip:?} of {name}"))?,
            node_ports: [node_port(0)?, node_port(1)?],
        })
    }

    fn at_cluster_ip(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.cluster_ip, manifests::SERVICE_PORT)
    }

    fn at_node(&self, node: Node, protocol: Protocol) -> SocketAddrV4 {
        let [tcp, udp] = self.node_ports;
        SocketAddrV4::new(
            node.address(),
            if protocol == Protocol::Tcp { tcp } else { udp },
        )
    }

    /// Waits until kube-proxy on each node has rules for the Service. One successful request is
    /// enough, because kube-proxy writes all rules of a Service in one transaction.
    fn await_rules(&self, cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
        for node in nodes {
            let question = question(Asker::Node(node), Protocol::Tcp, self.at_cluster_ip());
            wait::eventually(SYNC, || question.ask(cluster, 1))
                .with_context(|| format!("Service {}", self.name))?;
        }
        Ok(())
    }
}

fn question(asker: Asker<'_>, protocol: Protocol, to: SocketAddrV4) -> Question<'_> {
    Question {
        asker,
        source: None,
        protocol,
        to,
    }
}

fn names(answers: &[Answer]) -> BTreeSet<&str> {
    answers.iter().map(|answer| answer.pod.as_str()).collect()
}

/// Sends requests from every client to every address of the Service, and checks that pods of both
/// nodes answer.
fn check_spread(
    cluster: &Cluster,
    service: &Service,
    nodes: [Node; 2],
    clients: &[String; 2],
) -> Result<()> {
    let within = nodes
        .into_iter()
        .map(Asker::Node)
        .chain(clients.iter().map(|name| Asker::Pod(name)));
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let at_nodes = nodes.map(|node| service.at_node(node, protocol));
        let from_within = within.clone().flat_map(|asker| {
            at_nodes
                .into_iter()
                .chain([service.at_cluster_ip()])
                .map(move |to| question(asker, protocol, to))
        });
        let from_outside = at_nodes.map(|to| question(Asker::Outside, protocol, to));
        for question in from_within.chain(from_outside) {
            expect_both_nodes(cluster, &question, nodes)?;
        }
        println!(
            "{protocol}, externalTrafficPolicy Cluster: pods of both nodes answer at {} and {} from outside, at these and \
             {} from both nodes and a pod of each",
            at_nodes[0],
            at_nodes[1],
            service.at_cluster_ip()
        );
    }
    Ok(())
}

fn expect_both_nodes(cluster: &Cluster, question: &Question<'_>, nodes: [Node; 2]) -> Result<()> {
    let answers = question.ask(cluster, TIMES)?;
    let answered = names(&answers);
    for node in nodes {
        let is_there = manifests::backends(node)
            .iter()
            .any(|backend| answered.contains(backend.as_str()));
        ensure!(
            is_there,
            "{question}: none of {TIMES} answers is from a pod on {node}, all are from {answered:?}"
        );
    }
    Ok(())
}

/// Sends requests to each node from other hosts. Checks that only pods of this node answer, and
/// that they see the client's address.
fn check_local(cluster: &Cluster, service: &Service, nodes: [Node; 2]) -> Result<()> {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for (node, other) in [(nodes[0], nodes[1]), (nodes[1], nodes[0])] {
            let own = manifests::backends(node);
            for (asker, address) in [
                (Asker::Outside, API_SERVER),
                (Asker::Node(other), other.address()),
            ] {
                let question = question(asker, protocol, service.at_node(node, protocol));
                for Answer { pod, client } in question.ask(cluster, TIMES)? {
                    ensure!(
                        own.contains(&pod),
                        "{question}: {pod} answered, which is not on {node}"
                    );
                    ensure!(
                        client == address,
                        "{question}: {pod} saw the client {client} instead of {address}"
                    );
                }
            }
        }
        println!(
            "{protocol}, externalTrafficPolicy Local: at {} and {} only the node's own pods answer, and see the client's \
             address, from outside and from the other node",
            service.at_node(nodes[0], protocol),
            service.at_node(nodes[1], protocol)
        );
    }
    Ok(())
}

/// Checks that all requests of a client are answered by the same pod.
fn check_sticky(
    cluster: &Cluster,
    service: &Service,
    nodes: [Node; 2],
    clients: &[String; 2],
) -> Result<()> {
    let protocol = Protocol::Tcp;
    let within = nodes
        .into_iter()
        .map(Asker::Node)
        .chain(clients.iter().map(|name| Asker::Pod(name)));
    let questions = within
        .map(|asker| question(asker, protocol, service.at_cluster_ip()))
        .chain(
            nodes.map(|node| question(Asker::Outside, protocol, service.at_node(node, protocol))),
        );
    let mut chosen = Vec::new();
    for question in questions {
        let answers = question.ask(cluster, TIMES)?;
        let answered = names(&answers);
        ensure!(
            answered.len() == 1,
            "{question}: {} pods answered one client: {answered:?}",
            answered.len()
        );
        chosen.extend(
            answered
                .into_iter()
                .map(|pod| format!("{}: {pod}", question.asker)),
        );
    }
    println!(
        "sessionAffinity ClientIP: the same pod gives all of {TIMES} answers ({})",
        chosen.join(", ")
    );
    Ok(())
}
