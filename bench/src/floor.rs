//! The floor: the time that the kernel alone takes for a veth attachment, without any plugin.

use crate::chain::Timing;
use crate::netlink::{self, Socket};
use crate::node::Pod;
use anyhow::{Context, Result};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::time::Instant;

/// Name of the floor's row in reports.
pub(crate) const FLOOR: &str = "floor";
const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// A bridge to which pods are attached. It is in the calling thread's network namespace.
pub(crate) struct Floor {
    bridge: u32,
}

impl Floor {
    pub(crate) fn new() -> Result<Self> {
        let mut node = Socket::open()?;
        let (bridge, _) = netlink::made(&node.run([netlink::add_bridge("floor")])?)
            .context("add bridge floor")?;
        node.run([netlink::add_address(bridge, GATEWAY.into(), 15)])
            .context("add the gateway to bridge floor")?;
        Ok(Floor { bridge })
    }

    /// Attaches a pod with two netlink sends. Creates a veth with the bridge as master, sets both
    /// ends up, and adds an address and the default route.
    pub(crate) fn add(&self, slot: usize, pod: &mut Pod, ifname: &str) -> Result<Timing> {
        let mut node = Socket::open()?;
        let address = Ipv4Addr::from_bits(GATEWAY.to_bits() + 1 + u32::try_from(slot)?);
        let start = Instant::now();
        let veth = netlink::add_veth(
            &host_end(slot),
            Some(self.bridge),
            ifname,
            Some(pod.netns.as_fd()),
        );
        let (_, inside) = netlink::made(&node.run([veth]).context("add veth")?)?;
        pod.socket
            .run([
                netlink::set_up(inside),
                netlink::add_address(inside, address.into(), 15),
                netlink::add_default_route(inside, GATEWAY),
            ])
            .with_context(|| format!("set up {ifname}"))?;
        Ok(Timing::whole(start, Instant::now()))
    }

    /// Detaches a pod: deletes the host end of its veth with one `RTM_DELLINK`.
    pub(crate) fn del(slot: usize) -> Result<Timing> {
        let mut node = Socket::open()?;
        let start = Instant::now();
        node.run([netlink::del_link(&host_end(slot))])
            .with_context(|| format!("delete {}", host_end(slot)))?;
        Ok(Timing::whole(start, Instant::now()))
    }
}

fn host_end(slot: usize) -> String {
    format!("floor{slot}")
}
