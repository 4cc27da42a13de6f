//! Networks and pods of the check.

use crate::pods::{self, NETWORKS};
use anyhow::Result;
use braid_testbed::{Cluster, Node};
use serde_json::{Value, json};

/// Label of the check's pods and networks.
pub(super) const APP: &str = pods::CHURN;
/// Number of pods of a round.
pub(super) const AT_A_TIME: usize = 4;
const SERVED: &str = "churn-served";
const LAN: &str = "churn-lan";

/// Returns the networks of the check: a bridge with limits, and a macvlan.
pub(super) fn networks() -> Vec<Value> {
    let ipam = |net: u8| json!({"type": "host-local", "subnet": format!("198.18.{net}.0/24")});
    let bridge = json!({"type": "bridge", "bridge": "churn0", "isGateway": true, "ipam": ipam(31)});
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    let served = json!({"cniVersion": "1.0.0", "plugins": [bridge, bandwidth]});
    let lan = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "ipam": ipam(32)});
    vec![nad(SERVED, &served), nad(LAN, &lan)]
}

fn nad(name: &str, config: &Value) -> Value {
    pods::network(name, APP, config)
}

/// Returns the pods of a round. Every other one has a network.
pub(super) fn pods(first: usize, nodes: [Node; 2]) -> Vec<Value> {
    let mut pods = Vec::new();
    for number in first..first + AT_A_TIME {
        let node = nodes[number / 2 % nodes.len()];
        let networks = if number % 2 == 0 {
            limited()
        } else {
            String::new()
        };
        let name = format!("{APP}-{number}");
        pods.push(pods::requesting(&name, APP, node, &networks));
    }
    pods
}

fn limited() -> String {
    let bandwidth = json!({"ingressRate": 50_000_000, "ingressBurst": 800_000});
    json!([{"name": SERVED, "bandwidth": bandwidth}]).to_string()
}

/// Returns the edit of a pod, as an argument of `kubectl annotate`: another network beside the first
/// one, or a first one.
pub(super) fn edited(pod: &Value) -> String {
    let networks = if pod["metadata"]["annotations"][NETWORKS] == "" {
        limited()
    } else {
        format!("{LAN},{SERVED}")
    };
    format!("{NETWORKS}={networks}")
}

/// Returns the number of interfaces that a pod has to have.
pub(super) fn interfaces(pod: &Value) -> usize {
    let networks = pod["metadata"]["annotations"][NETWORKS].as_str();
    let networks = networks.unwrap_or_default();
    1 + usize::from(networks.contains(SERVED)) + usize::from(networks.contains(LAN))
}

/// Deletes the pods and networks of the check.
pub(super) fn delete(cluster: &Cluster) -> Result<()> {
    pods::delete(cluster, "pod,net-attach-def", APP)
}
