//! Addresses: requests and what the kernel shows.

use super::{emit, ip_of, u32_of};
use crate::plan::facts::AddrFact;
use crate::plan::thing::Addr;
use crate::sys::netlink::attributes_of;
use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use std::net::IpAddr;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_TENTATIVE: u32 = 0x40;
/// Length of `struct ifaddrmsg`.
const INFO_LEN: usize = 8;

/// Body of `RTM_NEWADDR` or `RTM_DELADDR`.
pub fn addr(index: u32, addr: &Addr, out: &mut Vec<u8>) {
    let mut message = AddressMessage::default();
    let ip = addr.net.addr();
    message.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.prefix_len = addr.net.prefix_len();
    message.header.index = index;
    message.attributes.extend([AddressAttribute::Local(ip), AddressAttribute::Address(ip)]);
    message.attributes.extend(addr.broadcast().map(AddressAttribute::Broadcast));
    let mut flags = AddressFlags::empty();
    flags.set(AddressFlags::Noprefixroute, addr.no_prefix_route);
    flags.set(AddressFlags::Nodad, addr.no_dad && ip.is_ipv6());
    if !flags.is_empty() {
        message.attributes.push(AddressAttribute::Flags(flags));
    }
    emit(&message, out);
}

/// Body of `RTM_GETADDR` for a dump of one link's addresses; all links where `index` is 0.
pub fn dump(index: u32, out: &mut Vec<u8>) {
    let mut message = AddressMessage::default();
    message.header.index = index;
    emit(&message, out);
}

/// Reads `RTM_NEWADDR`: the link's index and the address.
pub fn parse(body: &[u8]) -> Option<(u32, AddrFact)> {
    let head = body.first_chunk::<INFO_LEN>()?;
    let index = u32_of(&head[4..8])?;
    let (mut address, mut local, mut flags) = (None, None, u32::from(head[2]));
    for (kind, value) in attributes_of(&body[INFO_LEN..]) {
        match kind {
            IFA_ADDRESS => address = ip_of(value),
            IFA_LOCAL => local = ip_of(value),
            IFA_FLAGS => flags = u32_of(value)?,
            _ => {}
        }
    }
    let ip: IpAddr = local.or(address)?;
    let fact = AddrFact {
        net: IpNet::new(ip, head[1]).ok()?,
        tentative: flags & IFA_F_TENTATIVE != 0,
        dad_failed: flags & IFA_F_DADFAILED != 0,
        scope: head[3],
    };
    Some((index, fact))
}
