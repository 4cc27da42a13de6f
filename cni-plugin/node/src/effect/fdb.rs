//! Entries of a forwarding database: requests, and parsing of the kernel's messages.

use super::{Effect, Head, Transport};
use crate::kernel::Kernel;
use crate::sys::netlink::{CREATE, EXCL};
use crate::sys::rtnl::{emit, ip_of};
use crate::{Context, Error};
use braid_core::name::Mac;
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::{Fdb, LinkRef, Verb};
use netlink_packet_core::Parseable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};

const NEWNEIGH: u16 = libc::RTM_NEWNEIGH;
const DELNEIGH: u16 = libc::RTM_DELNEIGH;
const GETNEIGH: u16 = libc::RTM_GETNEIGH;
/// `NLM_F_APPEND` of `include/uapi/linux/netlink.h`.
const APPEND: u16 = 0x800;

impl Effect for Fdb {
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Request
    }

    fn link(&self) -> Option<&LinkRef> {
        Some(&self.at)
    }

    fn request(&self, verb: Verb, index: u32, body: &mut Vec<u8>) -> Option<Head> {
        let mut message = of_bridges();
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.header.flags = NeighbourFlags::Own;
        let attributes = &mut message.attributes;
        attributes.push(NeighbourAttribute::LinkLayerAddress(self.mac.0.to_vec()));
        attributes.push(NeighbourAttribute::Destination(self.dst.into()));
        attributes.extend(self.vlan.map(NeighbourAttribute::Vlan));
        attributes.extend(self.port.map(NeighbourAttribute::Port));
        attributes.extend(self.vni.map(NeighbourAttribute::Vni));
        emit(&message, body);
        // Only a flooded address has several remote ends. For other addresses the kernel ignores
        // `APPEND` (v6.12 `drivers/net/vxlan/vxlan_core.c`, `vxlan_fdb_update_existing()`).
        let new = if self.is_flooded() { APPEND } else { EXCL };
        Some(verb.word((NEWNEIGH, CREATE | new), (DELNEIGH, 0)))
    }
}

fn of_bridges() -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message
}

/// Reads the permanent entries with a remote end in the link's own forwarding database
/// (`NTF_SELF`).
pub(super) fn read(kernel: &mut Kernel, at: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    let link = kernel.link(at).doing(format_args!("look up link {at}"))?;
    let Some(link) = link else {
        return Ok(());
    };
    let messages = kernel.dump(at.ns, GETNEIGH, |out| emit(&of_bridges(), out));
    let mut entries = Vec::new();
    for message in messages.doing(format_args!("list forwarding entries at {at}"))? {
        entries.extend(parse(at, link.index, &message.body));
    }
    facts.fdb.insert(at.clone(), entries);
    Ok(())
}

fn parse(at: &LinkRef, index: u32, body: &[u8]) -> Option<Fdb> {
    let NeighbourMessage {
        header, attributes, ..
    } = NeighbourMessage::parse(body).ok()?;
    if header.ifindex != index
        || header.state != NeighbourState::Permanent
        || !header.flags.contains(NeighbourFlags::Own)
    {
        return None;
    }
    let (mut mac, mut dst) = (None, None);
    let (mut port, mut vni, mut vlan) = (None, None, None);
    for attribute in attributes {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the kernel adds more of them"
        )]
        match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.try_into().ok().map(Mac),
            NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => dst = ip_of(&bytes),
            NeighbourAttribute::Port(number) => port = Some(number),
            NeighbourAttribute::Vni(number) => vni = Some(number),
            NeighbourAttribute::Vlan(number) => vlan = Some(number),
            _ => {}
        }
    }
    Some(Fdb {
        at: at.clone(),
        mac: mac?,
        dst: dst?,
        port,
        vni,
        vlan,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netlink::find;
    use braid_core::name::IfName;

    /// Numbers of `include/uapi/linux/neighbour.h`.
    const NDA_DST: u16 = 1;
    const NDA_LLADDR: u16 = 2;
    const NDA_VLAN: u16 = 5;
    const NDA_PORT: u16 = 6;
    const NDA_VNI: u16 = 7;
    /// Length of `struct ndmsg`.
    const HEAD: usize = 12;

    fn entry(mac: [u8; 6]) -> Fdb {
        Fdb {
            at: LinkRef::pod(IfName::parse("eth0").expect("a name")),
            mac: Mac(mac),
            dst: "192.0.2.7".parse().expect("an address"),
            port: Some(8472),
            vni: Some(7),
            vlan: Some(5),
        }
    }

    #[test]
    fn an_entry_is_encoded_as_the_kernel_numbers_it_and_read_back() {
        let wanted = entry([2, 0, 0, 0, 0, 1]);
        let mut body = Vec::new();
        let head = wanted.request(Verb::Add, 9, &mut body);
        assert_eq!(head, Some((28, CREATE | EXCL)));
        // AF_BRIDGE, the index, NUD_PERMANENT, NTF_SELF.
        assert_eq!(body[..HEAD], [7, 0, 0, 0, 9, 0, 0, 0, 0x80, 0, 0x02, 0]);
        let attr = |kind| find(kind, &body[HEAD..]);
        assert_eq!(attr(NDA_LLADDR), Some(&[2, 0, 0, 0, 0, 1][..]));
        assert_eq!(attr(NDA_DST), Some(&[192, 0, 2, 7][..]));
        assert_eq!(attr(NDA_VLAN), Some(&5_u16.to_ne_bytes()[..]));
        assert_eq!(attr(NDA_PORT), Some(&8472_u16.to_be_bytes()[..]));
        assert_eq!(attr(NDA_VNI), Some(&7_u32.to_ne_bytes()[..]));
        assert_eq!(parse(&wanted.at, 9, &body).as_ref(), Some(&wanted));
        assert_eq!(parse(&wanted.at, 8, &body), None, "of another link");
    }

    #[test]
    fn only_a_flooded_address_is_appended() {
        let heads = [[2, 0, 0, 0, 0, 1], [0; 6], [0xff; 6]].map(|mac| {
            let head = entry(mac).request(Verb::Add, 9, &mut Vec::new());
            head.map(|(_, flags)| flags)
        });
        let append = Some(CREATE | APPEND);
        assert_eq!(heads, [Some(CREATE | EXCL), append, append]);
        let del = entry([0; 6]).request(Verb::Del, 9, &mut Vec::new());
        assert_eq!(del, Some((29, 0)));
    }
}
