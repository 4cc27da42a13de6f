//! Network between the cluster's namespaces. A veth connects each bridge to each of its namespaces:
//!
//! ```text
//!   braid-lan   br0 ──┬── eth0 braid-cp  10.99.0.1
//!                     ├── eth0 braid-n1  10.99.0.11   routes to the other nodes' pods
//!                     └── eth0 braid-n2  10.99.0.12
//!    198.18.1.1 br1 ──┴── eth1 of each node, without address, for secondary networks
//!    198.18.3.1 br2 ──┴── eth2 of each node, without address, for a pod that moves it into its netns
//!    198.18.2.1 lo        a host behind the router 198.18.1.1
//! ```

use crate::sh::{self, ip};
use crate::state::{API_SERVER, CONTROL_PLANE, LAN, Node, in_netns};
use anyhow::Result;
use std::net::Ipv4Addr;

/// Link of each node that a pod may move into its network namespace.
pub const DEVICE: &str = "eth2";
/// Addresses of the router on two bridges: the bridge of `eth1` and the bridge of [`DEVICE`].
pub const ROUTERS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 1, 1), Ipv4Addr::new(198, 18, 3, 1)];
/// Address of the router's loopback. It represents a host behind the router.
pub const BEYOND: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 1);
/// Address range on the bridge of `eth1`. The router sends packets to this range from the source
/// address [`BEYOND`].
const FROM_BEYOND: &str = "198.18.1.32/27";

/// Creates all namespaces, links, addresses and routes.
pub(crate) fn create(nodes: &[Node]) -> Result<()> {
    ip(&format!("netns add {LAN}"))?;
    for bridge in ["br0", "br1", "br2"] {
        ip(&format!("-n {LAN} link add {bridge} up type bridge"))?;
    }
    router()?;
    machine(CONTROL_PLANE, API_SERVER)?;
    pod_routes(CONTROL_PLANE, nodes)?;
    for node in nodes {
        let netns = node.netns();
        machine(&netns, node.address())?;
        cable(&format!("s{node}"), "br1", &netns, "eth1")?;
        cable(&format!("d{node}"), "br2", &netns, DEVICE)?;
        ip(&format!("-n {netns} route add default via {API_SERVER}"))?;
        let mut others = nodes.to_vec();
        others.retain(|other| other != node);
        pod_routes(&netns, &others)?;
    }
    Ok(())
}

fn router() -> Result<()> {
    let [lan, devices] = ROUTERS;
    ip(&format!("-n {LAN} link set lo up"))?;
    ip(&format!("-n {LAN} addr add {BEYOND}/32 dev lo"))?;
    ip(&format!("-n {LAN} addr add {lan}/24 dev br1"))?;
    ip(&format!("-n {LAN} addr add {devices}/24 dev br2"))?;
    ip(&format!(
        "-n {LAN} route add {FROM_BEYOND} dev br1 src {BEYOND}"
    ))
}

fn machine(netns: &str, address: Ipv4Addr) -> Result<()> {
    ip(&format!("netns add {netns}"))?;
    ip(&format!("-n {netns} link set lo up"))?;
    cable(netns.trim_start_matches("braid-"), "br0", netns, "eth0")?;
    ip(&format!("-n {netns} addr add {address}/24 dev eth0"))?;
    sh::run(in_netns(netns, "sysctl").args(["-qw", "net.ipv4.ip_forward=1"]))
}

/// Creates a veth and sets both ends up: `port` on `bridge`, and `ifname` in `netns`.
fn cable(port: &str, bridge: &str, netns: &str, ifname: &str) -> Result<()> {
    ip(&format!(
        "-n {LAN} link add {port} up master {bridge} type veth peer name {ifname} netns {netns}"
    ))?;
    ip(&format!("-n {netns} link set {ifname} up"))
}

fn pod_routes(netns: &str, nodes: &[Node]) -> Result<()> {
    for node in nodes {
        ip(&format!(
            "-n {netns} route add {} via {} dev eth0",
            node.pod_cidr(),
            node.address()
        ))?;
    }
    Ok(())
}
