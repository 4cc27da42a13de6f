//! The network of all nodes: a bridge in a namespace of its own, with a link to the namespace in
//! which the bench runs.

use crate::netlink::{self, Socket};
use crate::node::{self, Node, in_netns};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;

/// Prefix length of the network, 10.99.0.0/16.
const PREFIX_LEN: u8 = 16;
/// Address of the namespace in which the bench runs.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 99, 255, 254);
/// Sysctl by which the kernel sends packets of a bridge through its packet filter. It exists only
/// with the module `br_netfilter`.
const BRIDGE_FILTER: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// The bridge. Its namespace, and so every link to it, ends with this value.
pub(super) struct Lan {
    switch: Node,
    /// Index of the bridge.
    bridge: u32,
    mtu: u32,
}

impl Lan {
    /// Creates the bridge, and links it to the calling thread's network namespace.
    pub(super) fn new(mtu: u32) -> Result<Self> {
        let switch = Node::new(&[])?;
        let bridge = switch.run(|| {
            let mut socket = Socket::open()?;
            let (bridge, _) = netlink::made(&socket.run([netlink::add_bridge("switch")])?)?;
            // A switch between nodes has no packet filter.
            if fs::exists(BRIDGE_FILTER)? {
                fs::write(BRIDGE_FILTER, "0")?;
            }
            Ok(bridge)
        });
        let lan = Self {
            switch,
            bridge: bridge.context("add the bridge of the nodes")?,
            mtu,
        };
        let here = File::open("/proc/thread-self/ns/net").context("open the own namespace")?;
        lan.link("here", &here, HERE)?;
        Ok(lan)
    }

    /// Links a node to the bridge. Its address has the node's number as the last byte.
    pub(super) fn join(&self, node: &Node, number: u8) -> Result<()> {
        let address = Ipv4Addr::new(10, 99, 1, number);
        self.link(&format!("node{number}"), &node.network, address)
    }

    /// Links a namespace to the port `port` of the bridge.
    fn link(&self, port: &str, netns: &File, address: Ipv4Addr) -> Result<()> {
        let added = self.switch.run(|| {
            let mut socket = Socket::open()?;
            let master = Some(self.bridge);
            let veth = netlink::add_veth(port, master, node::LAN, Some(netns.as_fd()));
            let (near, far) = netlink::made(&socket.run([veth])?)?;
            socket.run([netlink::set_mtu(near, self.mtu)])?;
            Ok(far)
        });
        let far = added.with_context(|| format!("add veth {port}"))?;
        let set_up = in_netns(netns, || {
            Socket::open()?.run([
                netlink::set_mtu(far, self.mtu),
                netlink::set_up(far),
                netlink::add_address(far, address.into(), PREFIX_LEN),
            ])?;
            Ok(())
        });
        set_up.with_context(|| format!("add {address} to {}", node::LAN))
    }
}
