//! Checks of the effect of a call, so that a plugin that does nothing can't win.

use crate::call::IFNAME;
use crate::node::Pod;
use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::LinkFlags;
use serde_json::Value;

/// Fails unless the interface is there and up, has an address if one was wanted, and has all addresses of the result.
pub(crate) fn added(pod: &mut Pod, result: &Value, wants_address: bool) -> Result<()> {
    let link = pod.socket.link(IFNAME)?.with_context(|| format!("ADD made no {IFNAME} in the pod"))?;
    if !link.header.flags.contains(LinkFlags::Up) {
        bail!("ADD left {IFNAME} down");
    }
    let addresses = pod.socket.addresses()?;
    let global = |a: &AddressMessage| a.header.index == link.header.index && a.header.scope == AddressScope::Universe;
    if wants_address && !addresses.iter().any(global) {
        bail!("ADD left {IFNAME} without an address");
    }
    let there: Vec<_> = addresses.iter().filter_map(address).collect();
    for text in result["ips"].as_array().into_iter().flatten().filter_map(|ip| ip["address"].as_str()) {
        let said: IpNet = text.parse().with_context(|| format!("address \"{text}\" in the result of ADD"))?;
        if !there.contains(&said) {
            bail!("ADD's result names {said}, the pod has {there:?}");
        }
    }
    Ok(())
}

/// Fails unless the interface is gone.
pub(crate) fn deleted(pod: &mut Pod) -> Result<()> {
    match pod.socket.link(IFNAME)? {
        Some(_) => bail!("DEL left {IFNAME} in the pod"),
        None => Ok(()),
    }
}

/// A link's own address, not its peer's.
pub(crate) fn address(message: &AddressMessage) -> Option<IpNet> {
    let local =
        message.attributes.iter().find_map(|a| if let AddressAttribute::Local(ip) = a { Some(*ip) } else { None });
    let plain =
        message.attributes.iter().find_map(|a| if let AddressAttribute::Address(ip) = a { Some(*ip) } else { None });
    IpNet::new(local.or(plain)?, message.header.prefix_len).ok()
}
