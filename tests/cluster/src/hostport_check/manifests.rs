//! Pods and Services for the check of host ports. Every pod answers TCP and UDP with its name. The
//! pods mount Debian's Python for this, because busybox has no UDP server.

use super::ask::{PYTHON, Protocol};
use crate::pods;
use braid_testbed::Node;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

pub(super) const APP: &str = pods::HOST_PORT;
/// Port at which every pod listens.
pub(super) const PORT: u16 = 8080;
/// Port of every Service at its cluster IP.
pub(super) const SERVICE_PORT: u16 = 80;
const SERVER: &str = include_str!("answer.py");

/// Returns the names of the two pods on `node` that serve the Services.
pub(super) fn backends(node: Node) -> [String; 2] {
    ["a", "b"].map(|which| format!("backend-{node}-{which}"))
}

/// Returns the name of the pod on `node` that has no host port and serves no Service.
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

/// Returns a pod that is reachable at `port` of the node's address `host_ip`.
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

/// Returns a pod in the network of `node` that answers like the others.
pub(super) fn host_network_pod(name: &str, node: Node) -> Value {
    let mut pod = pod(name, node, name);
    pod["spec"]["hostNetwork"] = true.into();
    pod
}

/// Returns a pod with Debian's dnsmasq as a name server. `records` are its options.
pub(super) fn dns_pod(name: &str, node: Node, records: &[String]) -> Value {
    let mut pod = pod(name, node, name);
    let container = &mut pod["spec"]["containers"][0];
    let script = "ln -s /usr/lib* / && exec /usr/sbin/dnsmasq --keep-in-foreground --user=root \
                  --no-resolv --no-hosts --pid-file= --log-facility=- \"$@\"";
    container["command"] = json!(["/bin/sh", "-c", script, name]);
    container["args"] = json!(records);
    container["readinessProbe"] = json!({"tcpSocket": {"port": 53}, "periodSeconds": 1});
    pod
}

fn pod(name: &str, node: Node, part: &str) -> Value {
    // On Debian /lib is a link into /usr, and Python needs its libraries at that path.
    let mut spec = pods::spec(&format!(
        "ln -s /usr/lib* / && exec {PYTHON} -c \"$0\" {PORT}"
    ));
    // A node selector involves the scheduler, which must accept the same host port at two
    // addresses.
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

/// Returns a Service of type `NodePort` for the backend pods, with `keys` added to its spec.
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
