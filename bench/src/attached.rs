//! Pods attached by plugins to a separate node, and the peers of their traffic.

use crate::call::{Call, IFNAME};
use crate::chain;
use crate::conflist::Conflist;
use crate::netlink::{self, Socket};
use crate::node::{self, Node, Pod};
use crate::traffic::End;
use crate::{site, verify};
use anyhow::{Context, Result};
use ipnet::IpNet;
use netlink_packet_route::address::AddressMessage;
use serde_json::Value;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::Path;

/// A node with its attached pods.
pub(crate) struct Attached<'a> {
    pub(crate) node: Node,
    outside: Outside,
    dir: &'a Path,
    pods: Vec<AttachedPod>,
}

struct AttachedPod {
    pod: Pod,
    conflist: Conflist,
    id: String,
    result: Value,
}

impl<'a> Attached<'a> {
    /// Creates a node without pods for the plugins in `dir`.
    pub(crate) fn new(conflist: &Conflist, dir: &'a Path) -> Result<Self> {
        Self::to(site::node_for(conflist, dir)?, dir)
    }

    /// Uses a node without pods for the plugins in `dir`.
    pub(crate) fn to(node: Node, dir: &'a Path) -> Result<Self> {
        let outside = Outside::of(&node).context("move the uplink's far end")?;
        Ok(Attached {
            node,
            outside,
            dir,
            pods: Vec::new(),
        })
    }

    /// Attaches a pod. If the plugins did not put the gateway's address on the node, adds this
    /// address behind the uplink, like the address of the network's router.
    pub(crate) fn add(&mut self, conflist: Conflist) -> Result<()> {
        let slot = self.pods.len();
        let pod = self.node.add_pod(&format!("pod{slot}"))?;
        self.pods.push(AttachedPod {
            pod,
            conflist,
            id: format!("{:064x}", slot + 1),
            result: Value::Null,
        });
        let (Some(attached), dir) = (self.pods.last_mut(), self.dir) else {
            return Ok(());
        };
        attached.result = self
            .node
            .run(|| Ok(chain::add(&attached.conflist, attached.call("ADD", dir))?.1))?;
        verify::added(&mut attached.pod, &[IFNAME], &attached.result, true)?;
        for (_, gateway) in addresses(&attached.result) {
            self.outside.serve(&self.node, gateway)?;
        }
        Ok(())
    }

    /// Sends a DEL for all pods, as a runtime does even after a failed ADD.
    pub(crate) fn del(mut self) -> Result<()> {
        let (node, dir) = (&self.node, self.dir);
        let deleted = self.pods.iter_mut().map(|attached| {
            node.run(|| {
                chain::del(
                    &attached.conflist,
                    attached.call("DEL", dir),
                    &attached.result,
                )
            })?;
            verify::deleted(&mut attached.pod, &[IFNAME])
        });
        deleted.fold(Ok(()), Result::and)
    }

    /// Returns a pod and its gateway, which is on the node or behind the uplink.
    pub(crate) fn pod_and_gateway(&self, slot: usize, is_ipv4: bool) -> Result<(End<'_>, End<'_>)> {
        let attached = self.pods.get(slot).context("no such pod")?;
        let (address, gateway) = addresses(&attached.result)
            .map(|(address, gateway)| (address.addr(), gateway.addr()))
            .find(|(address, _)| address.is_ipv4() == is_ipv4)
            .with_context(|| {
                format!(
                    "ADD's result has no IPv{} address with a gateway",
                    if is_ipv4 { 4 } else { 6 }
                )
            })?;
        let netns = if has(&self.node, gateway)? {
            &self.node.network
        } else {
            &self.outside.pod.netns
        };
        Ok((
            End {
                netns: &attached.pod.netns,
                address,
            },
            End {
                netns,
                address: gateway,
            },
        ))
    }

    /// Returns the client behind the uplink.
    pub(crate) fn client(&self) -> End<'_> {
        End {
            netns: &self.outside.pod.netns,
            address: node::UPLINK_GATEWAY.into(),
        }
    }
}

impl AttachedPod {
    fn call<'a>(&'a self, verb: &'a str, dir: &'a Path) -> Call<'a> {
        Call {
            verb,
            dir,
            container: &self.id,
            netns: &self.pod.path,
            args: "",
            trace: None,
        }
    }
}

/// Namespace behind a node's uplink, with the node as its default gateway.
struct Outside {
    pod: Pod,
    /// Index of the uplink's far end.
    link: u32,
}

impl Outside {
    /// Moves the uplink's far end into a new namespace.
    fn of(node: &Node) -> Result<Self> {
        let mut pod = node.add_pod(node::OUTSIDE)?;
        node.run(|| {
            let mut socket = Socket::open()?;
            let link = socket
                .link(node::OUTSIDE)?
                .context("the uplink has no far end")?;
            Ok(socket.run([netlink::move_link(link.header.index, pod.netns.as_fd())])?)
        })?;
        let link = pod
            .socket
            .link(node::OUTSIDE)?
            .context("the uplink's far end got lost")?
            .header
            .index;
        pod.socket.run([
            netlink::set_up(link),
            netlink::add_address(link, node::UPLINK_GATEWAY.into(), 24),
            netlink::add_default_route(link, node::UPLINK_ADDRESS),
        ])?;
        Ok(Outside { pod, link })
    }

    /// Adds the address of a gateway to this namespace, unless the address is on the node. The
    /// namespace then represents the network's router.
    fn serve(&mut self, node: &Node, gateway: IpNet) -> Result<()> {
        if has(node, gateway.addr())?
            || self
                .pod
                .socket
                .addresses()?
                .iter()
                .any(|address| is(address, gateway.addr()))
        {
            return Ok(());
        }
        let add = netlink::add_address(self.link, gateway.addr(), gateway.prefix_len());
        self.pod
            .socket
            .run([add])
            .with_context(|| format!("add gateway {gateway} behind the uplink"))?;
        Ok(())
    }
}

/// True if the node itself has the address.
fn has(node: &Node, wanted: IpAddr) -> Result<bool> {
    let addresses = node.run(|| Ok(Socket::open()?.addresses()?))?;
    Ok(addresses.iter().any(|address| is(address, wanted)))
}

fn is(message: &AddressMessage, wanted: IpAddr) -> bool {
    verify::address(message).is_some_and(|address| address.addr() == wanted)
}

/// Returns the addresses in a result, each with its gateway in the same subnet. Leaves out
/// addresses without a gateway.
fn addresses(result: &Value) -> impl Iterator<Item = (IpNet, IpNet)> + '_ {
    result["ips"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|ip| {
            let address: IpNet = ip["address"].as_str()?.parse().ok()?;
            let gateway: IpAddr = ip["gateway"].as_str()?.parse().ok()?;
            Some((address, IpNet::new(gateway, address.prefix_len()).ok()?))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::address::AddressAttribute;
    use serde_json::json;

    #[test]
    fn addresses_without_a_gateway_have_no_peer() {
        let result = json!({"ips": [
            {"address": "10.1.0.2/16", "gateway": "10.1.0.1"}, {"address": "10.2.0.2/16"},
            {"address": "fd00::2/64", "gateway": "fd00::1"}]});
        let found: Vec<_> = addresses(&result)
            .map(|(address, gateway)| format!("{address} {gateway}"))
            .collect();
        assert_eq!(found, ["10.1.0.2/16 10.1.0.1/16", "fd00::2/64 fd00::1/64"]);
    }

    #[test]
    fn address_of_a_link_with_a_peer_is_its_own() {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let mut message = AddressMessage::default();
        message.attributes.push(AddressAttribute::Address(ip(2)));
        assert!(is(&message, ip(2)));
        message.attributes.push(AddressAttribute::Local(ip(1)));
        assert!(is(&message, ip(1)) && !is(&message, ip(2)));
    }
}
