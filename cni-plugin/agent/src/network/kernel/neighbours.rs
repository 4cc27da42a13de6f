//! Neighbours and FDB entries of the VXLAN link.

use super::{FAMILIES, Kernel, family_of};
use crate::error::Error;
use crate::network::routes::{Fdb, Neighbour, PROTOCOL};
use crate::network::vxlan::Name;
use braid_core::name::Mac;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Kernel {
    /// Lists the agent's own neighbours on a link; on flannel's links all permanent ones.
    pub(super) async fn neighbours(
        &self,
        link: u32,
        name: Name,
    ) -> Result<BTreeSet<Neighbour>, Error> {
        let mut neighbours = BTreeSet::new();
        for family in FAMILIES {
            let mut request = NeighbourMessage::default();
            request.header.family = family;
            // A filter in the header fails under strict checks.
            request.attributes = vec![NeighbourAttribute::IfIndex(link)];
            let request = RouteNetlinkMessage::GetNeighbour(request);
            for found in self.list("neighbours", request).await? {
                if let RouteNetlinkMessage::NewNeighbour(message) = found {
                    let is_ours = name.is_flannels() || is_marked(&message);
                    neighbours.extend(parse(&message, link).filter(|_| is_ours));
                }
            }
        }
        Ok(neighbours)
    }

    /// Lists the FDB entries of a link that have the agent's form.
    pub(super) async fn fdb(&self, link: u32) -> Result<BTreeSet<Fdb>, Error> {
        let mut request = NeighbourMessage::default();
        request.header.family = AddressFamily::Bridge;
        request.header.ifindex = link;
        let request = RouteNetlinkMessage::GetNeighbour(request);
        let mut entries = BTreeSet::new();
        for found in self.list("FDB entries", request).await? {
            if let RouteNetlinkMessage::NewNeighbour(message) = found {
                entries.extend(parse_entry(&message, link));
            }
        }
        Ok(entries)
    }
}

/// True if the neighbour has the agent's protocol number.
fn is_marked(message: &NeighbourMessage) -> bool {
    let protocol = NeighbourAttribute::Protocol(RouteProtocol::Other(PROTOCOL));
    message.attributes.contains(&protocol)
}

/// Returns a permanent neighbour.
fn parse(message: &NeighbourMessage, link: u32) -> Option<Neighbour> {
    let is_of_form =
        message.header.ifindex == link && message.header.state == NeighbourState::Permanent;
    let (dst, mac) = parts(message);
    let (dst, mac) = (dst?, mac?);
    is_of_form.then_some(Neighbour { dst, mac })
}

/// Returns an FDB entry of the agent's form: permanent, of the link itself, for one MAC, with
/// the link's own VNI and port.
fn parse_entry(message: &NeighbourMessage, link: u32) -> Option<Fdb> {
    let is_other = |attribute: &NeighbourAttribute| {
        matches!(
            attribute,
            NeighbourAttribute::Vni(_)
                | NeighbourAttribute::Port(_)
                | NeighbourAttribute::IfIndex(_)
        )
    };
    let is_ours = message.header.ifindex == link
        && message.header.state == NeighbourState::Permanent
        && message.header.flags.contains(NeighbourFlags::Own)
        && !message.attributes.iter().any(is_other);
    let (dst, mac) = parts(message);
    let (dst, mac) = (dst?, mac?);
    let is_unicast = mac != Mac([0; 6]) && mac.0[0] & 1 == 0;
    (is_ours && is_unicast).then_some(Fdb { mac, dst })
}

fn parts(message: &NeighbourMessage) -> (Option<IpAddr>, Option<Mac>) {
    let (mut dst, mut mac) = (None, None);
    for attribute in &message.attributes {
        if let NeighbourAttribute::Destination(address) = attribute {
            dst = ip(address);
        } else if let NeighbourAttribute::LinkLayerAddress(bytes) = attribute {
            mac = <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac);
        }
    }
    (dst, mac)
}

/// Parses an address. Addresses of FDB entries have no family, only a length.
fn ip(address: &NeighbourAddress) -> Option<IpAddr> {
    if let NeighbourAddress::Inet(address) = address {
        return Some(IpAddr::V4(*address));
    }
    if let NeighbourAddress::Inet6(address) = address {
        return Some(IpAddr::V6(*address));
    }
    let NeighbourAddress::Other(bytes) = address else {
        return None;
    };
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(IpAddr::V4(Ipv4Addr::from(bytes)));
    }
    let bytes = <[u8; 16]>::try_from(bytes.as_slice()).ok()?;
    Some(IpAddr::V6(Ipv6Addr::from(bytes)))
}

fn address(address: IpAddr) -> NeighbourAttribute {
    NeighbourAttribute::Destination(match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    })
}

pub(super) fn message(neighbour: &Neighbour, link: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family_of(neighbour.dst);
    message.header.ifindex = link;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![
        address(neighbour.dst),
        NeighbourAttribute::LinkLayerAddress(neighbour.mac.0.to_vec()),
        NeighbourAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
    ];
    message
}

pub(super) fn entry(entry: &Fdb, link: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = link;
    message.header.state = NeighbourState::Permanent;
    message.header.flags = NeighbourFlags::Own;
    message.attributes = vec![
        NeighbourAttribute::LinkLayerAddress(entry.mac.0.to_vec()),
        address(entry.dst),
    ];
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);

    #[test]
    fn neighbours_and_fdb_entries_survive_the_way_to_the_kernels_message_and_back() {
        for text in ["10.244.2.0", "fd00:2::"] {
            let dst = text.parse().expect("an address");
            let neighbour = Neighbour { dst, mac: MAC };
            assert_eq!(parse(&message(&neighbour, 7), 7), Some(neighbour.clone()));
            assert_eq!(parse(&message(&neighbour, 7), 8), None);
            let fdb = Fdb { mac: MAC, dst };
            assert_eq!(parse_entry(&entry(&fdb, 7), 7), Some(fdb.clone()));
            assert_eq!(parse_entry(&entry(&fdb, 7), 8), None);
        }
    }

    #[test]
    fn neighbours_without_the_protocol_and_fdb_entries_of_another_form_are_not_the_agents() {
        let dst = "10.244.2.0".parse().expect("an address");
        let mut by_hand = message(&Neighbour { dst, mac: MAC }, 7);
        assert!(is_marked(&by_hand));
        by_hand.attributes.pop();
        assert!(!is_marked(&by_hand));
        let ours = entry(&Fdb { mac: MAC, dst }, 7);
        let mut of_a_bridge = ours.clone();
        of_a_bridge.header.flags = NeighbourFlags::Controller;
        let mut other_vni = ours.clone();
        other_vni.attributes.push(NeighbourAttribute::Vni(9));
        let flood = entry(
            &Fdb {
                mac: Mac([0; 6]),
                dst,
            },
            7,
        );
        let mut learned = ours;
        learned.header.state = NeighbourState::Reachable;
        for other in [of_a_bridge, other_vni, flood, learned] {
            assert_eq!(parse_entry(&other, 7), None);
        }
    }
}
