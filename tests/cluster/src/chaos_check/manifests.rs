//! Manifests of the check: two networks, and the pods that come and go.

use crate::churn;
use crate::pods::{self, CHAOS as APP};
use anyhow::Result;
use braid_testbed::{Cluster, Node};
use serde_json::{Value, json};

const SERVED: &str = "chaos-served";

/// Returns the networks of the check: a macvlan network per node, and a bridge.
pub(super) fn networks(nodes: &[Node]) -> Vec<Value> {
    let mut networks = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        // The nodes share the LAN, so each node needs a separate address range.
        let ipam = json!({"type": "host-local", "subnet": "192.0.2.0/24",
            "rangeStart": format!("192.0.2.{}", number * 50 + 1),
            "rangeEnd": format!("192.0.2.{}", number * 50 + 50)});
        let lan = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "ipam": ipam});
        networks.push(nad(&lan_of(*node), &lan));
    }
    // Bridges stay with their address, so no other check has this range.
    let served = json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "chaos0",
        "isGateway": true, "ipam": {"type": "host-local", "subnet": "198.18.7.0/24"}});
    networks.push(nad(SERVED, &served));
    networks
}

fn nad(name: &str, config: &Value) -> Value {
    pods::network(name, APP, config)
}

fn lan_of(node: Node) -> String {
    format!("chaos-lan-{node}")
}

/// Deletes the pods and networks of the check.
pub(super) fn delete(cluster: &Cluster) -> Result<()> {
    pods::delete(cluster, "pod,net-attach-def", APP)
}

/// Returns a pod with two requested networks. Its container ends with a message if an interface or
/// its address is missing.
pub(super) fn short_lived(name: &str, node: Node) -> Value {
    let script = churn::script("eth0 net1 net2");
    let mut pod = pods::on(name, APP, node, pods::spec(&script));
    let requested = format!("{},{SERVED}", lan_of(node));
    pod["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/networks": requested});
    pod
}
