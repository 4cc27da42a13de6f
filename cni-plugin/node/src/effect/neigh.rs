//! Neighbours: requests, and parsing of the kernel's messages.

use super::{Effect, Head, Transport};
use crate::kernel::Kernel;
use crate::sys::netlink::{CREATE, EXCL};
use crate::sys::rtnl::emit;
use crate::{Context, Error};
use braid_core::name::Mac;
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::{LinkRef, Neigh, Verb};
use netlink_packet_core::Parseable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use std::net::IpAddr;

const NEWNEIGH: u16 = libc::RTM_NEWNEIGH;
const DELNEIGH: u16 = libc::RTM_DELNEIGH;
const GETNEIGH: u16 = libc::RTM_GETNEIGH;

impl Effect for Neigh {
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Request
    }

    fn link(&self) -> Option<&LinkRef> {
        Some(&self.at)
    }

    fn request(&self, verb: Verb, index: u32, body: &mut Vec<u8>) -> Option<Head> {
        let mut message = NeighbourMessage::default();
        let (family, addr) = match self.addr {
            IpAddr::V4(addr) => (AddressFamily::Inet, NeighbourAddress::Inet(addr)),
            IpAddr::V6(addr) => (AddressFamily::Inet6, NeighbourAddress::Inet6(addr)),
        };
        message.header.family = family;
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message
            .attributes
            .push(NeighbourAttribute::Destination(addr));
        message
            .attributes
            .push(NeighbourAttribute::LinkLayerAddress(self.mac.0.to_vec()));
        emit(&message, body);
        Some(verb.word((NEWNEIGH, CREATE | EXCL), (DELNEIGH, 0)))
    }
}

/// Reads the permanent neighbours on a link. Unknown kinds are skipped.
pub(crate) fn read(kernel: &mut Kernel, at: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    let link = kernel.link(at).doing(format_args!("look up link {at}"))?;
    let Some(link) = link else {
        return Ok(());
    };
    let messages = kernel.dump(at.ns, GETNEIGH, |out| {
        emit(&NeighbourMessage::default(), out);
    });
    let mut neighs = Vec::new();
    for message in messages.doing(format_args!("list neighbours at {at}"))? {
        neighs.extend(parse(at, link.index, &message.body));
    }
    facts.neighs.insert(at.clone(), neighs);
    Ok(())
}

fn parse(at: &LinkRef, index: u32, body: &[u8]) -> Option<Neigh> {
    let message = NeighbourMessage::parse(body).ok()?;
    if message.header.ifindex != index || message.header.state != NeighbourState::Permanent {
        return None;
    }
    let (mut addr, mut mac) = (None, None);
    for attribute in message.attributes {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the kernel adds more of them"
        )]
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => addr = Some(ip.into()),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => addr = Some(ip.into()),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.try_into().ok().map(Mac),
            _ => {}
        }
    }
    Some(Neigh {
        at: at.clone(),
        addr: addr?,
        mac: mac?,
    })
}
