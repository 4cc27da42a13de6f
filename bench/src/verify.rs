//! Checks of the effect of a call, so that a plugin that does nothing cannot win.

use crate::node::Pod;
use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::LinkFlags;
use serde_json::Value;

/// Fails unless the interfaces exist and are up, and have addresses if required. Also fails unless
/// the pod matches the result.
pub(crate) fn added(
    pod: &mut Pod,
    ifnames: &[impl AsRef<str>],
    result: &Value,
    wants_address: bool,
) -> Result<()> {
    let addresses = pod.socket.addresses()?;
    for ifname in ifnames.iter().map(AsRef::as_ref) {
        let link = pod
            .socket
            .link(ifname)?
            .with_context(|| format!("ADD made no {ifname} in the pod"))?;
        if !link.header.flags.contains(LinkFlags::Up) {
            bail!("ADD left {ifname} down");
        }
        let global = |a: &AddressMessage| {
            a.header.index == link.header.index && a.header.scope == AddressScope::Universe
        };
        if wants_address && !addresses.iter().any(global) {
            bail!("ADD left {ifname} without an address");
        }
    }
    let there: Vec<_> = addresses.iter().filter_map(address).collect();
    for text in result["ips"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|ip| ip["address"].as_str())
    {
        let said: IpNet = text
            .parse()
            .with_context(|| format!("address \"{text}\" in the result of ADD"))?;
        if !there.contains(&said) {
            bail!("ADD's result names {said}, the pod has {there:?}");
        }
    }
    Ok(())
}

/// Fails if one of the interfaces exists.
pub(crate) fn deleted(pod: &mut Pod, ifnames: &[impl AsRef<str>]) -> Result<()> {
    for ifname in ifnames.iter().map(AsRef::as_ref) {
        if pod.socket.link(ifname)?.is_some() {
            bail!("DEL left {ifname} in the pod");
        }
    }
    Ok(())
}

/// Returns the local address in a message, instead of the address of a point-to-point peer.
pub(crate) fn address(message: &AddressMessage) -> Option<IpNet> {
    let local = message.attributes.iter().find_map(|a| {
        if let AddressAttribute::Local(ip) = a {
            Some(*ip)
        } else {
            None
        }
    });
    let plain = message.attributes.iter().find_map(|a| {
        if let AddressAttribute::Address(ip) = a {
            Some(*ip)
        } else {
            None
        }
    });
    IpNet::new(local.or(plain)?, message.header.prefix_len).ok()
}
