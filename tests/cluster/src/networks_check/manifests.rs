//! Manifests of the check: networks, pods and an `IPAMClaim`.

use super::APP;
use crate::limit_check;
use crate::pods::{self, NETWORKS};
use anyhow::Result;
use braid_testbed::sh;
use braid_testbed::{Cluster, Node};
use serde_json::{Value, json};

/// Name of the network whose addresses are claimed, and of the `IPAMClaim`.
pub(super) const KEPT: &str = "kept";
/// Kinds of the check's objects, except pods.
const KINDS: &str = "net-attach-def,ipamclaims.k8s.cni.cncf.io";
const SERVED: &str = "served";

/// Returns the `NetworkAttachmentDefinition` objects of the check.
pub(super) fn networks(nodes: [Node; 2]) -> Vec<Value> {
    let lans = nodes.map(|node| {
        // The nodes share the LAN, so each node needs a separate address range.
        let (start, end) = if node == nodes[0] {
            (1, 127)
        } else {
            (128, 254)
        };
        let ipam = json!({"type": "host-local", "subnet": "192.0.2.0/24",
            "rangeStart": format!("192.0.2.{start}"), "rangeEnd": format!("192.0.2.{end}")});
        nad(
            &lan(node),
            &json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "ipam": ipam}),
        )
    });
    let bridge = json!({"type": "bridge", "bridge": "served0", "isGateway": true,
        "ipam": {"type": "host-local", "subnet": "203.0.113.0/24"}});
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    let served = nad(
        SERVED,
        &json!({"cniVersion": "1.0.0", "plugins": [bridge, portmap, bandwidth]}),
    );
    let ipam = json!({"type": "host-local", "subnet": "198.51.100.0/24"});
    let kept = nad(
        KEPT,
        &json!({"cniVersion": "1.0.0", "name": KEPT, "type": "ptp", "ipam": ipam}),
    );
    lans.into_iter().chain([served, kept]).collect()
}

/// Returns a `NetworkAttachmentDefinition` with the CNI configuration `config`.
pub(super) fn nad(name: &str, config: &Value) -> Value {
    object(
        "v1",
        "NetworkAttachmentDefinition",
        name,
        &json!({"config": config.to_string()}),
    )
}

/// Returns an `IPAMClaim` for an address of the network [`KEPT`].
pub(super) fn claim() -> Value {
    object(
        "v1alpha1",
        "IPAMClaim",
        KEPT,
        &json!({"network": KEPT, "interface": "net1"}),
    )
}

fn object(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    let metadata = json!({"name": name, "labels": {"app": APP}});
    json!({"apiVersion": format!("k8s.cni.cncf.io/{version}"), "kind": kind, "metadata": metadata, "spec": spec})
}

/// Deletes the networks and claims of the check, if the API server knows their kinds.
pub(super) fn delete(cluster: &Cluster) -> Result<()> {
    let kinds = sh::read(&mut cluster.kubectl([
        "api-resources",
        "--api-group=k8s.cni.cncf.io",
        "-o",
        "name",
    ]))?;
    if kinds.trim().is_empty() {
        return Ok(());
    }
    pods::delete(cluster, KINDS, APP)
}

fn lan(node: Node) -> String {
    format!("lan-{node}")
}

/// Returns the names of the networks that the status of a pod on `node` lists, in order.
pub(super) fn names(node: Node) -> Vec<String> {
    vec![
        "pods".into(),
        format!("default/{}", lan(node)),
        format!("default/{SERVED}"),
    ]
}

/// Returns the host port of the pod with this number.
pub(super) fn host_port(number: u16) -> u16 {
    20_000 + number
}

/// Returns `count` sleeping pods with three networks each: the default network and two requested
/// ones. They alternate between the nodes.
pub(super) fn attached(count: u16, nodes: [Node; 2]) -> Vec<Value> {
    let pod = |(number, node)| with_networks(&plain_pod(number, node), &all(number, node));
    each(count, nodes).map(pod).collect()
}

/// Returns the pods of [`attached`], but without requested networks.
pub(super) fn plain(count: u16, nodes: [Node; 2]) -> Vec<Value> {
    each(count, nodes)
        .map(|(number, node)| plain_pod(number, node))
        .collect()
}

fn each(count: u16, nodes: [Node; 2]) -> impl Iterator<Item = (u16, Node)> {
    (1..=count).map(move |number| (number, nodes[usize::from(number % 2)]))
}

fn plain_pod(number: u16, node: Node) -> Value {
    pod(
        &format!("{APP}-{number}"),
        node,
        pods::spec("exec sleep 1000000"),
    )
}

/// Returns a pod that serves its name in three networks. Its traffic in [`SERVED`] is limited.
pub(super) fn server(name: &str, number: u16, node: Node) -> Value {
    with_networks(&pod(name, node, limit_check::spec()), &all(number, node))
}

/// Returns a pod in the network [`SERVED`] that has neither a limit nor a host port.
pub(super) fn neighbour(name: &str, node: Node) -> Value {
    with_networks(
        &pod(name, node, limit_check::spec()),
        &json!([{"name": SERVED}]),
    )
}

/// Returns a pod that requests `networks` and sleeps.
pub(super) fn asking(name: &str, node: Node, networks: &Value) -> Value {
    with_networks(&pod(name, node, pods::spec("exec sleep 1000000")), networks)
}

/// Returns a pod that the node selector binds to `node`.
pub(super) fn pod(name: &str, node: Node, mut spec: Value) -> Value {
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": node.to_string()});
    pods::pod(name, APP, &spec)
}

/// Returns `pod` with an annotation that requests `networks`.
pub(super) fn with_networks(pod: &Value, networks: &Value) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["annotations"] = json!({NETWORKS: networks.to_string()});
    pod
}

/// Returns a request for two networks: the macvlan network of `node`, and the bridge network
/// [`SERVED`] with a host port and a limit.
fn all(number: u16, node: Node) -> Value {
    let bandwidth =
        json!({"ingressRate": limit_check::INGRESS.1, "egressRate": limit_check::EGRESS.1});
    let mappings = json!([{"hostPort": host_port(number), "containerPort": 80, "protocol": "TCP"}]);
    json!([{"name": lan(node)}, {"name": SERVED, "portMappings": mappings, "bandwidth": bandwidth}])
}
