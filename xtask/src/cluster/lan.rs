//! The network between the machines that there are not: two bridges, and a veth from each to every namespace.
//!
//! ```text
//!   braid-lan   br0 ──┬── eth0 braid-cp  10.99.0.1
//!                     ├── eth0 braid-n1  10.99.0.11   routes to the other nodes' pods
//!                     └── eth0 braid-n2  10.99.0.12
//!               br1 ──┴── eth1 of each node, without address, for secondary networks
//! ```

use super::state::{API_SERVER, CONTROL_PLANE, LAN, Node, in_netns};
use crate::sh::{self, ip};
use anyhow::Result;
use std::net::Ipv4Addr;

/// Makes all namespaces, links, addresses and routes.
pub(crate) fn create(nodes: &[Node]) -> Result<()> {
    ip(&format!("netns add {LAN}"))?;
    for bridge in ["br0", "br1"] {
        ip(&format!("-n {LAN} link add {bridge} up type bridge"))?;
    }
    machine(CONTROL_PLANE, API_SERVER)?;
    pod_routes(CONTROL_PLANE, nodes)?;
    for node in nodes {
        let netns = node.netns();
        machine(&netns, node.address())?;
        cable(&format!("s{node}"), "br1", &netns, "eth1")?;
        ip(&format!("-n {netns} route add default via {API_SERVER}"))?;
        let others: Vec<Node> = nodes.iter().copied().filter(|other| other != node).collect();
        pod_routes(&netns, &others)?;
    }
    Ok(())
}

fn machine(netns: &str, address: Ipv4Addr) -> Result<()> {
    ip(&format!("netns add {netns}"))?;
    ip(&format!("-n {netns} link set lo up"))?;
    cable(netns.trim_start_matches("braid-"), "br0", netns, "eth0")?;
    ip(&format!("-n {netns} addr add {address}/24 dev eth0"))?;
    sh::run(in_netns(netns, "sysctl").args(["-qw", "net.ipv4.ip_forward=1"]))
}

/// A veth whose `port` is on `bridge` and whose other end is `ifname` in `netns`; both up.
fn cable(port: &str, bridge: &str, netns: &str, ifname: &str) -> Result<()> {
    ip(&format!("-n {LAN} link add {port} up master {bridge} type veth peer name {ifname} netns {netns}"))?;
    ip(&format!("-n {netns} link set {ifname} up"))
}

fn pod_routes(netns: &str, nodes: &[Node]) -> Result<()> {
    nodes
        .iter()
        .try_for_each(|node| ip(&format!("-n {netns} route add {} via {} dev eth0", node.pod_cidr(), node.address())))
}
