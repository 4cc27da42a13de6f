//! Attributes of links.

use super::{Effect, Head, Transport, link};
use crate::sys::netlink::{attr, nest};
use crate::sys::rtnl::{self, emit};
use braid_core::plan::thing::{Attr, LinkAttr, LinkRef, Verb};
use netlink_packet_core::DefaultNla;
use netlink_packet_route::link::{
    InfoBridgePort, InfoPortData, InfoPortKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};

const AF_INET: u16 = 2;
/// `IPV4_DEVCONF_ARP_NOTIFY` (include/uapi/linux/ip.h).
const ARP_NOTIFY: u16 = 22;

impl Effect for Attr {
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Request
    }

    fn link(&self) -> Option<&LinkRef> {
        Some(&self.at)
    }

    /// Returns `None` for a deletion: the attribute is deleted with its link.
    fn request(&self, verb: Verb, index: u32, body: &mut Vec<u8>) -> Option<Head> {
        set_attrs(index, [&self.to], body);
        verb.word(Some((rtnl::NEWLINK, 0)), None)
    }
}

/// Writes the body of `RTM_NEWLINK` that sets attributes of the link with this index.
pub(crate) fn set_attrs<'a>(
    index: u32,
    attrs: impl IntoIterator<Item = &'a LinkAttr>,
    out: &mut Vec<u8>,
) {
    let mut message = LinkMessage::default();
    message.header.index = index;
    for attr in attrs {
        set_attr(&mut message, attr);
    }
    emit(&message, out);
}

fn set_attr(message: &mut LinkMessage, attr: &LinkAttr) {
    let mut flag = |flag, on: bool| {
        message.header.change_mask |= flag;
        if on {
            message.header.flags |= flag;
        }
    };
    let port = |option| {
        LinkAttribute::LinkInfo(vec![
            LinkInfo::PortKind(InfoPortKind::Bridge),
            LinkInfo::PortData(InfoPortData::BridgePort(vec![option])),
        ])
    };
    match attr {
        LinkAttr::Up(on) => flag(LinkFlags::Up, *on),
        LinkAttr::Promisc(on) => flag(LinkFlags::Promisc, *on),
        LinkAttr::AllMulti(on) => flag(LinkFlags::Allmulti, *on),
        LinkAttr::Mac(mac) | LinkAttr::Announce(mac) => message
            .attributes
            .push(LinkAttribute::Address(mac.0.to_vec())),
        LinkAttr::Mtu(mtu) => message.attributes.push(LinkAttribute::Mtu(*mtu)),
        LinkAttr::TxQueueLen(len) => message.attributes.push(LinkAttribute::TxQueueLen(*len)),
        LinkAttr::GsoMaxSize(size) => message.attributes.push(LinkAttribute::GsoMaxSize(*size)),
        LinkAttr::Alias(text) => message
            .attributes
            .push(LinkAttribute::IfAlias(text.clone())),
        LinkAttr::Hairpin(on) => message
            .attributes
            .push(port(InfoBridgePort::HairpinMode(*on))),
        LinkAttr::ArpNotify(on) => message
            .attributes
            .push(ipv4_devconf(ARP_NOTIFY, u32::from(*on))),
        LinkAttr::Isolated(on) => message.attributes.push(port(InfoBridgePort::Isolated(*on))),
    }
}

/// Builds `IFLA_AF_SPEC` with one value of `/proc/sys/net/ipv4/conf/<link>`: family, then
/// `IFLA_INET_CONF`, then the value.
fn ipv4_devconf(which: u16, value: u32) -> LinkAttribute {
    const INET_CONF: u16 = 1;
    let mut spec = Vec::new();
    nest(AF_INET, &mut spec, |out| {
        nest(INET_CONF, out, |out| attr(which, &value.to_ne_bytes(), out));
    });
    LinkAttribute::Other(DefaultNla::new(link::ifla::AF_SPEC, spec))
}
