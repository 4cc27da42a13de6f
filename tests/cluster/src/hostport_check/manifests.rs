//! The pods and Services of the check. Every pod answers TCP and UDP with its name; busybox has
//! nothing that answers UDP, so the pods are given Debian's Python by a mount.

use super::ask::{PYTHON, Protocol};
use crate::pods;
use braid_testbed::Node;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

pub(super) const APP: &str = pods::HOST_PORT;
/// The port of every pod.
const PORT: u16 = 8080;
/// The port of every Service.
pub(super) const SERVICE_PORT: u16 = 80;
const SERVER: &str = include_str!("answer.py");

/// The names of the Services' pods on `node`.
pub(super) fn backends(node: Node) -> [String; 2] {
    ["a", "b"].map(|which| format!("backend-{node}-{which}"))
}

/// The name of the pod on `node` that nothing leads to.
pub(super) fn client(node: Node) -> String {
    format!("client-{node}")
}

pub(super) fn client_pod(node: Node) -> Value {
    pod(&client(node), node, "client")
}

pub(super) fn backend_pods(node: Node) -> impl Iterator<Item = Value> {
    backends(node)
        .into_iter()
        .map(move |name| pod(&name, node, "backend"))
}

/// A pod to which `port` of its node leads.
pub(super) fn host_port_pod(
    name: &str,
    node: Node,
    host_ip: Ipv4Addr,
    protocol: Protocol,
    port: u16,
) -> Value {
    let mut pod = pod(name, node, "host-port");
    let protocol = protocol.to_string().to_uppercase();
    pod["spec"]["containers"][0]["ports"] =
        json!([{"containerPort": PORT, "hostPort": port, "hostIP": host_ip, "protocol": protocol}]);
    pod
}

fn pod(name: &str, node: Node, part: &str) -> Value {
    // Python finds its libraries where a merged /usr has them.
    let mut spec = pods::spec(&format!(
        "ln -s /usr/lib* / && exec {PYTHON} -c \"$0\" {PORT}"
    ));
    // By the scheduler, which has to accept one host port at two addresses.
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": node.to_string()});
    spec["volumes"] = json!([{"name": "usr", "hostPath": {"path": "/usr", "type": "Directory"}}]);
    let container = &mut spec["containers"][0];
    container["args"] = json!([SERVER]);
    container["volumeMounts"] = json!([{"name": "usr", "mountPath": "/usr", "readOnly": true}]);
    container["readinessProbe"] = json!({"tcpSocket": {"port": PORT}, "periodSeconds": 1});
    let mut pod = pods::pod(name, APP, &spec);
    pod["metadata"]["labels"]["part"] = part.into();
    pod
}

/// A Service of the backends that has a port on every node; `keys` are more of its spec.
pub(super) fn service(name: &str, keys: &[(&str, &str)]) -> Value {
    let port = |protocol: Protocol| {
        let name = protocol.to_string();
        json!({"name": name, "protocol": name.to_uppercase(), "port": SERVICE_PORT, "targetPort": PORT})
    };
    let mut spec = json!({
        "type": "NodePort",
        "selector": {"app": APP, "part": "backend"},
        "ports": [port(Protocol::Tcp), port(Protocol::Udp)],
    });
    for (key, value) in keys {
        spec[*key] = (*value).into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"app": APP}},
        "spec": spec,
    })
}
