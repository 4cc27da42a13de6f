//! Network between the cluster's namespaces. A veth connects each bridge to each of its namespaces:
//!
//! ```text
//!   braid-lan   br0 ──┬── eth0 braid-cp  10.99.0.1
//!   10.99.0.254       ├── eth0 braid-n1  10.99.0.11
//!                     └── eth0 braid-n2  10.99.0.12
//!   10.98.0.254 br3 ───── eth0 braid-n6  10.98.0.16   nodes behind the router
//!    198.18.1.1 br1 ──┴── eth1 of each node, without address, for secondary networks
//!    198.18.3.1 br2 ──┴── eth2 of each node, without address, for a pod that moves it into its netns
//!    198.18.2.1 lo        a host behind the router 198.18.1.1
//! ```
//!
//! With IPv6, 10.99.0.11 is also `fd99::11`, and 10.98.0.16 is also `fd98::16`.

use crate::layout::Layout;
use crate::sh::{self, ip};
use crate::state::{API_SERVER, API_SERVER6, CONTROL_PLANE, LAN, Node, in_netns};
use anyhow::Result;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Link of each node that a pod may move into its network namespace.
pub const DEVICE: &str = "eth2";
/// Addresses of the router on two bridges: the bridge of `eth1` and the bridge of [`DEVICE`].
pub const ROUTERS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 1, 1), Ipv4Addr::new(198, 18, 3, 1)];
/// Address of the router's loopback. It represents a host behind the router.
pub const BEYOND: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 1);
/// Address range on the bridge of `eth1`. The router sends packets to this range from the source
/// address [`BEYOND`].
const FROM_BEYOND: &str = "198.18.1.32/27";

/// A link of machines.
struct Link {
    bridge: &'static str,
    /// The router to the other link.
    router: Addresses,
    /// IPv4 and IPv6 range of the other link.
    beyond: [&'static str; 2],
}

const NEAR: Link = Link {
    bridge: "br0",
    router: Addresses {
        ipv4: Ipv4Addr::new(10, 99, 0, 254),
        ipv6: Ipv6Addr::new(0xFD99, 0, 0, 0, 0, 0, 0, 0xFE),
    },
    beyond: ["10.98.0.0/24", "fd98::/64"],
};
const FAR: Link = Link {
    bridge: "br3",
    router: Addresses {
        ipv4: Ipv4Addr::new(10, 98, 0, 254),
        ipv6: Ipv6Addr::new(0xFD98, 0, 0, 0, 0, 0, 0, 0xFE),
    },
    beyond: ["10.99.0.0/24", "fd99::/64"],
};

impl Link {
    fn of(node: Node) -> &'static Self {
        if node.is_far() { &FAR } else { &NEAR }
    }

    /// Returns the next hop of the default route.
    fn outside(&self) -> Addresses {
        if self.bridge == FAR.bridge {
            self.router
        } else {
            Addresses {
                ipv4: API_SERVER,
                ipv6: API_SERVER6,
            }
        }
    }
}

/// Addresses of a machine.
#[derive(Clone, Copy)]
struct Addresses {
    ipv4: Ipv4Addr,
    ipv6: Ipv6Addr,
}

/// Creates the namespaces of the LAN and of the control plane, and joins the nodes.
pub(crate) fn create(nodes: &[Node], layout: Layout) -> Result<()> {
    let mtu = layout.mtu;
    ip(&format!("netns add {LAN}"))?;
    for bridge in ["br0", "br1", "br2", "br3"] {
        ip(&format!(
            "-n {LAN} link add {bridge} mtu {mtu} up type bridge"
        ))?;
    }
    router(layout)?;
    let own = Addresses {
        ipv4: API_SERVER,
        ipv6: API_SERVER6,
    };
    machine(CONTROL_PLANE, &NEAR, &own, layout)?;
    // The control plane is the way to the outside.
    sysctl(CONTROL_PLANE, "net.ipv4.ip_forward=1")?;
    for (number, node) in nodes.iter().enumerate() {
        join(*node, &nodes[..number], layout)?;
    }
    Ok(())
}

/// Creates the namespace of a node and its links. With routes between pods, `others` get a route to
/// the node's pods, and the node gets routes to theirs.
pub(crate) fn join(node: Node, others: &[Node], layout: Layout) -> Result<()> {
    let netns = node.netns();
    let link = Link::of(node);
    let own = Addresses {
        ipv4: node.address(),
        ipv6: node.address6(),
    };
    machine(&netns, link, &own, layout)?;
    cable(&format!("s{node}"), "br1", &netns, "eth1", layout)?;
    cable(&format!("d{node}"), "br2", &netns, DEVICE, layout)?;
    let Addresses { ipv4, ipv6 } = link.outside();
    ip(&format!("-n {netns} route add default via {ipv4}"))?;
    if layout.has_ipv6 {
        ip(&format!("-n {netns} route add default via {ipv6}"))?;
    }
    if !layout.has_routes {
        return Ok(());
    }
    sysctl(&netns, "net.ipv4.ip_forward=1")?;
    pod_route(CONTROL_PLANE, node)?;
    for other in others {
        pod_route(&netns, *other)?;
        pod_route(&other.netns(), node)?;
    }
    Ok(())
}

/// Deletes the links and the namespace of a node. The kernel deletes a namespace some time later.
pub(crate) fn leave(node: Node) -> Result<()> {
    for port in ["", "s", "d"] {
        ip(&format!("-n {LAN} link del {port}{node}"))?;
    }
    ip(&format!("netns del {}", node.netns()))
}

fn router(layout: Layout) -> Result<()> {
    let [lan, devices] = ROUTERS;
    ip(&format!("-n {LAN} link set lo up"))?;
    ip(&format!("-n {LAN} addr add {BEYOND}/32 dev lo"))?;
    ip(&format!("-n {LAN} addr add {lan}/24 dev br1"))?;
    ip(&format!("-n {LAN} addr add {devices}/24 dev br2"))?;
    ip(&format!(
        "-n {LAN} route add {FROM_BEYOND} dev br1 src {BEYOND}"
    ))?;
    for link in [&NEAR, &FAR] {
        let Link { bridge, router, .. } = link;
        ip(&format!(
            "-n {LAN} addr add {}/24 dev {bridge}",
            router.ipv4
        ))?;
        sysctl(LAN, &format!("net.ipv4.conf.{bridge}.forwarding=1"))?;
        if layout.has_ipv6 {
            ip(&format!(
                "-n {LAN} addr add {}/64 dev {bridge} nodad",
                router.ipv6
            ))?;
        }
    }
    ip(&format!("-n {LAN} route add default via {API_SERVER}"))?;
    if layout.has_ipv6 {
        ip(&format!("-n {LAN} route add default via {API_SERVER6}"))?;
        sysctl(LAN, "net.ipv6.conf.all.forwarding=1")?;
    }
    Ok(())
}

/// Creates the namespace of a machine on `link`, with its addresses and routes to the other link.
fn machine(netns: &str, link: &Link, own: &Addresses, layout: Layout) -> Result<()> {
    ip(&format!("netns add {netns}"))?;
    ip(&format!("-n {netns} link set lo up"))?;
    let port = netns.trim_start_matches("braid-");
    cable(port, link.bridge, netns, "eth0", layout)?;
    let Link { router, beyond, .. } = link;
    ip(&format!("-n {netns} addr add {}/24 dev eth0", own.ipv4))?;
    ip(&format!(
        "-n {netns} route add {} via {}",
        beyond[0], router.ipv4
    ))?;
    if layout.has_ipv6 {
        ip(&format!(
            "-n {netns} addr add {}/64 dev eth0 nodad",
            own.ipv6
        ))?;
        ip(&format!(
            "-n {netns} route add {} via {}",
            beyond[1], router.ipv6
        ))?;
    }
    Ok(())
}

/// Creates a veth and sets both ends up: `port` on `bridge`, and `ifname` in `netns`.
fn cable(port: &str, bridge: &str, netns: &str, ifname: &str, layout: Layout) -> Result<()> {
    let mtu = layout.mtu;
    ip(&format!(
        "-n {LAN} link add {port} mtu {mtu} up master {bridge} type veth peer name {ifname} mtu {mtu} netns {netns}"
    ))?;
    ip(&format!("-n {netns} link set {ifname} up"))
}

fn pod_route(netns: &str, node: Node) -> Result<()> {
    ip(&format!(
        "-n {netns} route replace {} via {} dev eth0",
        node.pod_cidr(),
        node.address()
    ))
}

fn sysctl(netns: &str, setting: &str) -> Result<()> {
    sh::run(in_netns(netns, "sysctl").args(["-qw", setting]))
}
