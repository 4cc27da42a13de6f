//! Shaped pods on a node of their own, and who is at the other end of their traffic.

use super::cell::{Direction, Family, Rate};
use super::traffic::{End, Way};
use crate::call::Call;
use crate::chain;
use crate::conflist::Conflist;
use crate::netlink;
use crate::node::{self, Node, Pod};
use crate::site;
use crate::verify;
use anyhow::{Context, Result};
use ipnet::IpNet;
use netlink_packet_route::address::AddressAttribute;
use serde_json::Value;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::Path;

/// A node with its attached pods.
pub(crate) struct Attached<'a> {
    node: Node,
    /// Behind the node's uplink.
    outside: Pod,
    dir: &'a Path,
    pods: Vec<ShapedPod>,
}

struct ShapedPod {
    pod: Pod,
    conflist: Conflist,
    id: String,
    result: Value,
}

impl<'a> Attached<'a> {
    /// Attaches a pod for each rate.
    ///
    /// When an ADD fails, the pods get a DEL as a runtime would send it, before the failure is returned.
    pub(crate) fn new(conflist: &Conflist, dir: &'a Path, rates: &[Rate]) -> Result<Self> {
        let node = site::node_for(conflist, dir)?;
        let outside = move_outside(&node)?;
        let mut attached = Attached { node, outside, dir, pods: Vec::new() };
        match rates.iter().enumerate().try_for_each(|(slot, rate)| attached.add(conflist, slot, *rate)) {
            Ok(()) => Ok(attached),
            Err(err) => {
                // The failure of ADD is what counts.
                let _ = attached.del();
                Err(err)
            }
        }
    }

    fn add(&mut self, conflist: &Conflist, slot: usize, rate: Rate) -> Result<()> {
        let conflist = conflist.with_capability("bandwidth", &rate.limits());
        let pod = self.node.add_pod(&format!("pod{slot}"))?;
        self.pods.push(ShapedPod { pod, conflist, id: format!("{:064x}", slot + 1), result: Value::Null });
        let (Some(shaped), dir) = (self.pods.last_mut(), self.dir) else { return Ok(()) };
        shaped.result = self.node.run(|| Ok(chain::add(&shaped.conflist, shaped.call("ADD", dir))?.1))?;
        verify::added(&mut shaped.pod, &shaped.result, true)?;
        for (_, gateway) in addresses(&shaped.result) {
            serve(&self.node, &mut self.outside, gateway)?;
        }
        Ok(())
    }

    /// DEL for all pods.
    pub(crate) fn del(mut self) -> Result<()> {
        let (node, dir) = (&self.node, self.dir);
        let deleted = self.pods.iter_mut().map(|shaped| {
            node.run(|| chain::del(&shaped.conflist, shaped.call("DEL", dir), &shaped.result))?;
            verify::deleted(&mut shaped.pod)
        });
        deleted.fold(Ok(()), Result::and)
    }

    /// The way of the traffic of one pod.
    pub(crate) fn way(&self, slot: usize, direction: Direction, family: Family) -> Result<Way<'_>> {
        let shaped = self.pods.get(slot).context("no such pod")?;
        let of_family = |(address, _): &(IpNet, IpNet)| address.addr().is_ipv4() == (family == Family::V4);
        let (address, gateway) = addresses(&shaped.result)
            .find(of_family)
            .with_context(|| format!("ADD's result has no IPv{family} address with a gateway"))?;
        let near = End { netns: &shaped.pod.netns, address: address.addr() };
        let on_node = has(&self.node, gateway.addr())?;
        let far =
            End { netns: if on_node { &self.node.network } else { &self.outside.netns }, address: gateway.addr() };
        Ok(match direction {
            Direction::Ingress => Way { from: far, to: near },
            Direction::Egress => Way { from: near, to: far },
        })
    }
}

impl ShapedPod {
    fn call<'a>(&'a self, verb: &'a str, dir: &'a Path) -> Call<'a> {
        Call { verb, dir, container: &self.id, netns: &self.pod.path, trace: None }
    }
}

/// Puts the uplink's far end into a namespace of its own.
fn move_outside(node: &Node) -> Result<Pod> {
    let mut outside = node.add_pod(node::OUTSIDE)?;
    node.run(|| {
        let mut socket = netlink::Socket::open()?;
        let link = socket.link(node::OUTSIDE)?.context("the uplink has no far end")?;
        Ok(socket.run([netlink::move_link(link.header.index, outside.netns.as_fd())])?)
    })
    .context("move the uplink's far end")?;
    let link = outside.socket.link(node::OUTSIDE)?.context("the uplink's far end got lost")?;
    outside.socket.run([netlink::set_up(link.header.index)]).context("set the uplink's far end up")?;
    Ok(outside)
}

/// Gives a gateway that is not on the node to the far end of the uplink, where a network's router would be.
fn serve(node: &Node, outside: &mut Pod, gateway: IpNet) -> Result<()> {
    let far = outside.socket.addresses()?;
    if has(node, gateway.addr())? || far.iter().any(|address| is(&address.attributes, gateway.addr())) {
        return Ok(());
    }
    let link = outside.socket.link(node::OUTSIDE)?.context("the uplink has no far end")?;
    let add = netlink::add_address(link.header.index, gateway.addr(), gateway.prefix_len());
    outside.socket.run([add]).with_context(|| format!("add gateway {gateway} behind the uplink"))?;
    Ok(())
}

/// Whether the node itself has the address.
fn has(node: &Node, wanted: IpAddr) -> Result<bool> {
    let addresses = node.run(|| Ok(netlink::Socket::open()?.addresses()?))?;
    Ok(addresses.iter().any(|address| is(&address.attributes, wanted)))
}

fn is(attributes: &[AddressAttribute], wanted: IpAddr) -> bool {
    let found = |a: &AddressAttribute| matches!(a, AddressAttribute::Local(ip) | AddressAttribute::Address(ip) if *ip == wanted);
    // Both are in a message about a link with a peer, where `Address` is the peer's.
    let local = attributes.iter().find(|a| matches!(a, AddressAttribute::Local(_)));
    local.map_or_else(|| attributes.iter().any(found), found)
}

/// The addresses of a result that have a gateway, each with the gateway in the same subnet.
fn addresses(result: &Value) -> impl Iterator<Item = (IpNet, IpNet)> + '_ {
    result["ips"].as_array().into_iter().flatten().filter_map(|ip| {
        let address: IpNet = ip["address"].as_str()?.parse().ok()?;
        let gateway: IpAddr = ip["gateway"].as_str()?.parse().ok()?;
        Some((address, IpNet::new(gateway, address.prefix_len()).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_without_a_gateway_have_no_other_end() {
        let result = json!({"ips": [
            {"address": "10.1.0.2/16", "gateway": "10.1.0.1"}, {"address": "10.2.0.2/16"},
            {"address": "fd00::2/64", "gateway": "fd00::1"}]});
        let found: Vec<_> = addresses(&result).map(|(address, gateway)| format!("{address} {gateway}")).collect();
        assert_eq!(found, ["10.1.0.2/16 10.1.0.1/16", "fd00::2/64 fd00::1/64"]);
    }

    #[test]
    fn address_of_a_link_with_a_peer_is_its_own() {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let both = [AddressAttribute::Address(ip(2)), AddressAttribute::Local(ip(1))];
        assert!(is(&both, ip(1)) && !is(&both, ip(2)));
        assert!(is(&[AddressAttribute::Address(ip(2))], ip(2)));
    }
}
