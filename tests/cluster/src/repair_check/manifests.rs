//! Networks of the check.

use crate::pods;
use anyhow::Result;
use braid_testbed::Cluster;
use serde_json::{Value, json};

/// Label of the check's pods and networks.
pub(super) const APP: &str = pods::REPAIR;
/// A bridge with host ports.
pub(super) const SERVED: &str = "repair-served";
/// Its link, and its gateway.
pub(super) const BRIDGE: &str = "repair0";
pub(super) const GATEWAY: &str = "198.18.41.1";
/// A macvlan network.
pub(super) const LAN: &str = "repair-lan";
/// The parent of [`LAN`], which the check makes.
pub(super) const PARENT: &str = "repair1";
/// Makes the parent: a pair with both ends up.
pub(super) const MAKE_PARENT: &str =
    "ip link add repair1 up type veth peer name repair2; ip link set repair2 up";

/// Returns the networks of the check.
pub(super) fn networks() -> Vec<Value> {
    let ipam = |net: u8| json!({"type": "host-local", "subnet": format!("198.18.{net}.0/24")});
    let bridge = json!({"type": "bridge", "bridge": BRIDGE, "isGateway": true, "ipMasq": true,
        "ipam": ipam(41)});
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let served = json!({"cniVersion": "1.0.0", "plugins": [bridge, portmap]});
    let lan = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": PARENT, "ipam": ipam(42)});
    vec![
        pods::network(SERVED, APP, &served),
        pods::network(LAN, APP, &lan),
    ]
}

/// Deletes the pods and networks of the check.
pub(super) fn delete(cluster: &Cluster) -> Result<()> {
    pods::delete(cluster, "pod,net-attach-def", APP)
}
