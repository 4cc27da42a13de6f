//! Who is at the other end of a pod's traffic: on the node, or behind its uplink.

use crate::netlink;
use crate::node::{self, Node, Pod};
use crate::verify;
use anyhow::{Context, Result};
use ipnet::IpNet;
use netlink_packet_route::address::AddressMessage;
use serde_json::Value;
use std::net::IpAddr;
use std::os::fd::AsFd as _;

/// Puts the uplink's far end into a namespace of its own.
pub(crate) fn move_outside(node: &Node) -> Result<Pod> {
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
pub(crate) fn serve(node: &Node, outside: &mut Pod, gateway: IpNet) -> Result<()> {
    let far = outside.socket.addresses()?;
    if has(node, gateway.addr())? || far.iter().any(|address| is(address, gateway.addr())) {
        return Ok(());
    }
    let link = outside.socket.link(node::OUTSIDE)?.context("the uplink has no far end")?;
    let add = netlink::add_address(link.header.index, gateway.addr(), gateway.prefix_len());
    outside.socket.run([add]).with_context(|| format!("add gateway {gateway} behind the uplink"))?;
    Ok(())
}

/// Whether the node itself has the address.
pub(crate) fn has(node: &Node, wanted: IpAddr) -> Result<bool> {
    let addresses = node.run(|| Ok(netlink::Socket::open()?.addresses()?))?;
    Ok(addresses.iter().any(|address| is(address, wanted)))
}

fn is(message: &AddressMessage, wanted: IpAddr) -> bool {
    verify::address(message).is_some_and(|address| address.addr() == wanted)
}

/// The addresses of a result that have a gateway, each with the gateway in the same subnet.
pub(crate) fn addresses(result: &Value) -> impl Iterator<Item = (IpNet, IpNet)> + '_ {
    result["ips"].as_array().into_iter().flatten().filter_map(|ip| {
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
        let mut message = AddressMessage::default();
        message.attributes.push(AddressAttribute::Address(ip(2)));
        assert!(is(&message, ip(2)));
        message.attributes.push(AddressAttribute::Local(ip(1)));
        assert!(is(&message, ip(1)) && !is(&message, ip(2)));
    }
}
