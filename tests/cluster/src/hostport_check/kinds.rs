//! Services of the other kinds: headless, of one node, at an external address, with two ports and
//! without a selector. Also pods in the node's network, and names from a DNS server behind a
//! Service.

use super::ask::{Answer, Asker, PYTHON, Question};
use super::{Protocol, manifests};
use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use manifests::APP;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Number of requests that show every pod of a Service, except with a probability of 2^-32.
const TIMES: u32 = 32;
/// Longest time until kube-proxy has written its rules.
const SYNC: Duration = Duration::from_secs(20);
const INSIDE: &str = "inside";
const OUTER: &str = "outer";
const MANUAL: &str = "manual";
const HEADLESS: &str = "headless";
const HOSTS: &str = "hosts";
const DNS: &str = "dns";
/// Address of a Service outside the cluster's ranges.
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);
/// Address of the name server in the kubelet's configuration.
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// Second port of a Service with two TCP ports.
const SECOND: u16 = 81;

/// Creates the Services, and sends requests to them.
pub(super) fn check(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let [backend, _] = manifests::backends(nodes[0]);
    let address = pod_ip(cluster, &backend)?;
    cluster.create(&[
        service(INSIDE, &json!({"internalTrafficPolicy": "Local"})),
        service(
            OUTER,
            &json!({"externalIPs": [EXTERNAL], "ports": [tcp("one", 80), tcp("two", SECOND)]}),
        ),
        service(MANUAL, &json!({"selector": null})),
        slice(address),
        service(HEADLESS, &json!({"clusterIP": "None"})),
        service(HOSTS, &json!({"selector": {"app": APP, "part": HOSTS}})),
        manifests::host_network_pod(HOSTS, nodes[0]),
    ])?;
    pods::await_ready(cluster, APP)?;
    inside(cluster, nodes)?;
    outer(cluster, nodes)?;
    manual(cluster, nodes, &backend)?;
    host_network(cluster, nodes)?;
    names(cluster, nodes)
}

fn tcp(name: &str, port: u16) -> Value {
    json!({"name": name, "protocol": "TCP", "port": port, "targetPort": manifests::PORT})
}

/// Returns a Service of type `ClusterIP` for the backend pods, with the keys of `change`.
pub(super) fn service(name: &str, change: &Value) -> Value {
    let mut service = manifests::service(name, &[("type", "ClusterIP")]);
    for (key, value) in change.as_object().into_iter().flatten() {
        service["spec"][key] = value.clone();
    }
    service
}

/// Returns the endpoint of the Service without a selector.
fn slice(address: Ipv4Addr) -> Value {
    let port = |name: &str, protocol: &str| json!({"name": name, "protocol": protocol, "port": manifests::PORT});
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": MANUAL, "labels": {"app": APP, "kubernetes.io/service-name": MANUAL}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": [port("tcp", "TCP"), port("udp", "UDP")],
    })
}

/// Checks that only pods of the client's node answer with `internalTrafficPolicy: Local`.
fn inside(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let to = at(cluster, INSIDE)?;
    for node in nodes {
        let client = manifests::client(node);
        let own: BTreeSet<String> = manifests::backends(node).into();
        for asker in [Asker::Pod(&client), Asker::Node(node)] {
            let answers = ask(cluster, asker, Protocol::Tcp, to)?;
            let names: BTreeSet<String> = answers.into_iter().map(|answer| answer.pod).collect();
            ensure!(
                names == own,
                "{asker} to {INSIDE}: {names:?} answered, not {own:?}"
            );
        }
    }
    println!("internalTrafficPolicy Local: only the pods of the client's node answer");
    Ok(())
}

/// Checks both ports of a Service at its external address and at its cluster IP.
fn outer(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let clients = nodes.map(manifests::client);
    let cluster_ip = *at(cluster, OUTER)?.ip();
    for address in [EXTERNAL, cluster_ip] {
        for port in [80, SECOND] {
            let to = SocketAddrV4::new(address, port);
            for asker in [
                Asker::Pod(&clients[0]),
                Asker::Pod(&clients[1]),
                Asker::Node(nodes[0]),
            ] {
                let answers = ask(cluster, asker, Protocol::Tcp, to)?;
                let names: BTreeSet<String> =
                    answers.into_iter().map(|answer| answer.pod).collect();
                ensure!(
                    names.len() == 4,
                    "{asker} to {to}: {names:?} answered, not all four"
                );
            }
        }
    }
    println!("externalIPs and two ports: all pods answer at {EXTERNAL} and {cluster_ip}");
    Ok(())
}

/// Checks the Service with an endpoint that an administrator wrote, on the first node. The endpoint
/// itself is one of its clients.
fn manual(cluster: &Cluster, nodes: [Node; 2], backend: &str) -> Result<()> {
    let to = at(cluster, MANUAL)?;
    let clients = nodes.map(manifests::client);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for (name, node) in [
            (&*clients[0], nodes[0]),
            (&clients[1], nodes[1]),
            (backend, nodes[0]),
        ] {
            let source = source(cluster, name, [node, nodes[0]])?;
            for answer in ask(cluster, Asker::Pod(name), protocol, to)? {
                ensure!(
                    answer.pod == backend,
                    "{name} to {MANUAL}: {} answered",
                    answer.pod
                );
                ensure!(
                    name == backend || answer.client == source,
                    "{name} to {MANUAL}: the endpoint saw {} instead of {source}",
                    answer.client
                );
            }
        }
    }
    println!("no selector: the endpoint of an EndpointSlice answers all pods, itself included");
    Ok(())
}

/// Checks requests from pods to a pod in the node's network and to its Service, and back.
fn host_network(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let direct = SocketAddrV4::new(nodes[0].address(), manifests::PORT);
    for node in nodes {
        let client = manifests::client(node);
        let own = pod_ip(cluster, &client)?;
        let source = source(cluster, &client, [node, nodes[0]])?;
        for to in [direct, at(cluster, HOSTS)?] {
            // The kernel answers UDP to any address of the node from the address nearest to the pod.
            for answer in ask(cluster, Asker::Pod(&client), Protocol::Tcp, to)? {
                ensure!(
                    answer.client == source,
                    "{client} to {to}: a pod in the node's network saw {} instead of {source}",
                    answer.client
                );
            }
        }
        let to = SocketAddrV4::new(own, manifests::PORT);
        for to in [to, at(cluster, MANUAL)?] {
            for answer in ask(cluster, Asker::Pod(HOSTS), Protocol::Tcp, to)? {
                ensure!(
                    to.ip() != &own || answer.pod == client,
                    "{HOSTS} to {to}: {} answered",
                    answer.pod
                );
            }
        }
    }
    // Its address is the node's, which stays in rules.
    sh::read(&mut cluster.kubectl(["delete", "pod", HOSTS]))?;
    println!(
        "a pod in the node's network reaches pods and Services, and they reach it and its Service"
    );
    Ok(())
}

/// Checks that pods resolve names of Services through a Service of a DNS server, with UDP and TCP.
/// The name of a headless Service is that of its pods.
fn names(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let mut addresses = BTreeSet::new();
    for name in nodes.into_iter().flat_map(manifests::backends) {
        addresses.insert(pod_ip(cluster, &name)?);
    }
    let record = |name: &str, address: &Ipv4Addr| {
        format!("--host-record={name}.default.svc.cluster.local,{address}")
    };
    let mut records: Vec<String> = addresses.iter().map(|it| record(HEADLESS, it)).collect();
    let manual = *at(cluster, MANUAL)?.ip();
    records.push(record(MANUAL, &manual));
    let port = |name: &str, protocol: &str| json!({"name": name, "protocol": protocol, "port": 53, "targetPort": 53});
    let ports = json!([port("tcp", "TCP"), port("udp", "UDP")]);
    let keys =
        json!({"clusterIP": NAME_SERVER, "selector": {"app": APP, "part": DNS}, "ports": ports});
    cluster.create(&[
        service(DNS, &keys),
        manifests::dns_pod(DNS, nodes[1], &records),
    ])?;
    pods::await_ready(cluster, APP)?;
    for node in nodes {
        for options in ["", "use-vc"] {
            for (name, expected) in [
                (HEADLESS, addresses.clone()),
                (MANUAL, BTreeSet::from([manual])),
            ] {
                wait::eventually(SYNC, || {
                    let found = resolve(cluster, &manifests::client(node), options, name)?;
                    ensure!(found == expected, "{name} is {found:?}, not {expected:?}");
                    Ok(())
                })
                .with_context(|| format!("names on {node}, resolver options {options:?}"))?;
            }
        }
    }
    println!("pods of both nodes resolve names at {NAME_SERVER}, with UDP and with TCP");
    Ok(())
}

fn resolve(cluster: &Cluster, pod: &str, options: &str, name: &str) -> Result<BTreeSet<Ipv4Addr>> {
    let script = "import socket, sys; \
        print(*{it[4][0] for it in socket.getaddrinfo(sys.argv[1], 80, socket.AF_INET)})";
    let options = format!("RES_OPTIONS={options}");
    let exec = [
        "exec", pod, "--", "env", &options, PYTHON, "-c", script, name,
    ];
    let said = sh::read(&mut cluster.kubectl(exec))?;
    let addresses = said.split_whitespace().map(str::parse);
    addresses
        .collect::<Result<_, _>>()
        .with_context(|| format!("addresses of {name}: {said:?}"))
}

pub(super) fn ask(
    cluster: &Cluster,
    asker: Asker<'_>,
    protocol: Protocol,
    to: SocketAddrV4,
) -> Result<Vec<Answer>> {
    let question = Question {
        asker,
        source: None,
        protocol,
        to,
    };
    wait::eventually(SYNC, || question.ask(cluster, 1))?;
    question.ask(cluster, TIMES)
}

/// Returns the first port of a Service at its cluster IP.
pub(super) fn at(cluster: &Cluster, service: &str) -> Result<SocketAddrV4> {
    let address = field(cluster, &["service", service], "{.spec.clusterIP}")?;
    Ok(SocketAddrV4::new(address, manifests::SERVICE_PORT))
}

fn pod_ip(cluster: &Cluster, pod: &str) -> Result<Ipv4Addr> {
    field(cluster, &["pod", pod], "{.status.podIP}")
}

/// Returns the address with which a pod on the first node is seen on the second: its own one, or the
/// node's if the nodes' network masquerades all packets to other nodes.
fn source(cluster: &Cluster, pod: &str, [from, to]: [Node; 2]) -> Result<Ipv4Addr> {
    if from != to && masquerades(cluster, from)? {
        return Ok(from.address());
    }
    pod_ip(cluster, pod)
}

/// True if a network of the node has the key `ipMasq`. The agent's own network does not have it.
fn masquerades(cluster: &Cluster, node: Node) -> Result<bool> {
    let folder = cluster.root(node)?.join("etc/cni/net.d");
    for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_file() && fs::read_to_string(&path)?.contains(r#""ipMasq": true"#) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn field(cluster: &Cluster, object: &[&str], path: &str) -> Result<Ipv4Addr> {
    let path = format!("jsonpath={path}");
    let text = sh::read(cluster.kubectl(["get", "-o", &path]).args(object))?;
    text.parse()
        .with_context(|| format!("address {text:?} of {}", object.join(" ")))
}
