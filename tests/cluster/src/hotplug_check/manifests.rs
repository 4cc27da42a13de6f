//! Networks and pods of the check.

use crate::pods;
use anyhow::Result;
use braid_testbed::Cluster;
use serde_json::{Value, json};

/// Label of the check's pods and networks.
pub(super) const APP: &str = pods::HOT_PLUG;
/// A macvlan network of the node.
pub(super) const LAN: &str = "plug-lan";
/// A bridge with limits and host ports.
pub(super) const SERVED: &str = "plug-served";
/// A bridge with a gateway to other networks.
pub(super) const WAN: &str = "plug-wan";
/// Address of the gateway of [`WAN`].
pub(super) const WAN_GATEWAY: &str = "198.18.22.1";
/// A network with a parent that does not exist.
pub(super) const BROKEN: &str = "plug-broken";
/// A network that a part of the check creates.
pub(super) const LATE: &str = "plug-late";

/// Returns the networks of the check.
pub(super) fn networks() -> Vec<Value> {
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    let served =
        json!({"cniVersion": "1.0.0", "plugins": [bridge("plug0", 21), portmap, bandwidth]});
    vec![
        nad(LAN, &macvlan("eth1", 20)),
        nad(SERVED, &served),
        nad(WAN, &bridge("plug1", 22)),
        nad(BROKEN, &macvlan("absent0", 23)),
    ]
}

/// Returns a network that the check creates while it runs.
pub(super) fn late() -> Value {
    nad(LATE, &bridge("plug2", 24))
}

fn macvlan(parent: &str, net: u8) -> Value {
    json!({"cniVersion": "1.0.0", "type": "macvlan", "master": parent, "ipam": ipam(net),
        "capabilities": {"ips": true, "mac": true}})
}

fn bridge(name: &str, net: u8) -> Value {
    json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": name, "isGateway": true,
        "ipam": ipam(net), "capabilities": {"ips": true, "mac": true}})
}

fn ipam(net: u8) -> Value {
    json!({"type": "host-local", "subnet": format!("198.18.{net}.0/24")})
}

fn nad(name: &str, config: &Value) -> Value {
    pods::network(name, APP, config)
}

/// Deletes the pods and networks of the check.
pub(super) fn delete(cluster: &Cluster) -> Result<()> {
    pods::delete(cluster, "pod,net-attach-def", APP)
}
