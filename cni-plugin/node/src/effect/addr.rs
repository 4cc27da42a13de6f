//! Addresses: requests, and parsing of the kernel's messages.

use super::{Effect, Head, Transport, link};
use crate::kernel::Kernel;
use crate::sys::netlink::{CREATE, EXCL, KernelError, Socket, attributes_of};
use crate::sys::rtnl::{self, emit, ip_of, u32_of};
use crate::{Context, Error};
use braid_core::plan::facts::{AddrFact, Facts};
use braid_core::plan::thing::{Addr, LinkRef, Verb};
use ipnet::IpNet;
use libc::{IFA_ADDRESS, IFA_F_DADFAILED, IFA_F_TENTATIVE, IFA_FLAGS, IFA_LOCAL};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use std::net::IpAddr;

/// Length of `struct ifaddrmsg`.
const INFO_LEN: usize = 8;

impl Effect for Addr {
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Request
    }

    fn link(&self) -> Option<&LinkRef> {
        Some(&self.at)
    }

    fn request(&self, verb: Verb, index: u32, body: &mut Vec<u8>) -> Option<Head> {
        write(index, self, body);
        Some(verb.word((rtnl::NEWADDR, CREATE | EXCL), (rtnl::DELADDR, 0)))
    }
}

/// Writes the body of `RTM_NEWADDR` or `RTM_DELADDR`.
fn write(index: u32, addr: &Addr, out: &mut Vec<u8>) {
    let mut message = AddressMessage::default();
    let ip = addr.net.addr();
    message.header.family = if ip.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    message.header.prefix_len = addr.net.prefix_len();
    message.header.index = index;
    message
        .attributes
        .extend([AddressAttribute::Local(ip), AddressAttribute::Address(ip)]);
    message
        .attributes
        .extend(addr.broadcast().map(AddressAttribute::Broadcast));
    let mut flags = AddressFlags::empty();
    flags.set(AddressFlags::Noprefixroute, addr.no_prefix_route);
    flags.set(AddressFlags::Nodad, addr.no_dad && ip.is_ipv6());
    if !flags.is_empty() {
        message.attributes.push(AddressAttribute::Flags(flags));
    }
    emit(&message, out);
}

/// Lists the addresses of the link with this index, or of all links if it is 0. Each address comes
/// with its link's index.
pub fn list(socket: &mut Socket, index: u32) -> Result<Vec<(u32, AddrFact)>, KernelError> {
    let mut message = AddressMessage::default();
    message.header.index = index;
    let mut addrs = Vec::new();
    for message in socket.dump(rtnl::GETADDR, |out| emit(&message, out))? {
        if let Some((link, fact)) = parse(&message.body)
            && (index == 0 || link == index)
        {
            addrs.push((link, fact));
        }
    }
    Ok(addrs)
}

/// Reads the addresses of a link.
pub(crate) fn read(kernel: &mut Kernel, at: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    link::read(kernel, at, facts)?;
    let Some(link) = facts.link(at) else {
        return Ok(());
    };
    let index = link.index;
    let listed = kernel
        .route(at.ns)
        .and_then(|socket| Ok(list(socket, index)?));
    let listed = listed.doing(format_args!("list addresses of {at}"))?;
    let addrs = listed.into_iter().map(|(_, fact)| fact).collect();
    facts.addrs.insert(at.clone(), addrs);
    Ok(())
}

/// Parses `RTM_NEWADDR`: the link's index and the address.
pub(crate) fn parse(body: &[u8]) -> Option<(u32, AddrFact)> {
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
