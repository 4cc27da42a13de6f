//! Requests to create, delete and read links.

use super::{emit, u16_of};
use braid_core::name::{IfName, LinkName, Mac};
use netlink_packet_core::DefaultNla;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoNetkit, InfoVeth, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo,
    LinkMessage, NetkitMode, NetkitPolicy, Prop,
};
use std::os::fd::RawFd;

/// `IFLA_TARGET_NETNSID` (`include/uapi/linux/if_link.h`).
const TARGET_NETNSID: u16 = 46;

/// Attributes of a new link, apart from its kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewLink<'a> {
    /// Name of the link.
    pub name: Option<&'a IfName>,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// True to set the link up.
    pub up: bool,
    /// Index of the link's master.
    pub master: Option<u32>,
    /// Namespace of the new link, if not the socket's.
    pub netns: Option<RawFd>,
    /// Index of the link's parent.
    pub parent: Option<u32>,
    /// Length of the transmit queue in packets.
    pub tx_queue_len: Option<u32>,
    /// True for one queue in each direction. A virtual link has no use for more, and each costs two
    /// RCU grace periods at creation.
    pub one_queue: bool,
}

/// Kind of a new link, with kind-specific attributes.
#[derive(Debug)]
pub enum NewKind<'a> {
    /// A veth pair, with the attributes of the other end.
    Veth(NewLink<'a>),
    /// A netkit pair, with the attributes of the primary end's peer.
    Netkit(NewLink<'a>, NetkitMode),
    /// Any other kind, with its attributes.
    Single(InfoKind, Option<InfoData>),
}

fn message(link: &NewLink<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    let attributes = &mut message.attributes;
    if let Some(name) = link.name {
        attributes.push(LinkAttribute::IfName(name.to_string()));
    }
    if let Some(mac) = link.mac {
        attributes.push(LinkAttribute::Address(mac.0.to_vec()));
    }
    attributes.extend(link.mtu.map(LinkAttribute::Mtu));
    attributes.extend(link.master.map(LinkAttribute::Controller));
    attributes.extend(link.netns.map(LinkAttribute::NetNsFd));
    attributes.extend(link.parent.map(LinkAttribute::Link));
    attributes.extend(link.tx_queue_len.map(LinkAttribute::TxQueueLen));
    if link.one_queue {
        attributes.extend([LinkAttribute::NumTxQueues(1), LinkAttribute::NumRxQueues(1)]);
    }
    if link.up {
        message.header.flags |= LinkFlags::Up;
        message.header.change_mask |= LinkFlags::Up;
    }
    message
}

/// Writes the body of `RTM_NEWLINK` for a new link.
pub fn new_link(link: &NewLink<'_>, kind: &NewKind<'_>, out: &mut Vec<u8>) {
    let mut message = message(link);
    let (kind, data) = match kind {
        NewKind::Veth(peer) => (
            InfoKind::Veth,
            Some(InfoData::Veth(InfoVeth::Peer(self::message(peer)))),
        ),
        NewKind::Netkit(peer, mode) => (
            InfoKind::Netkit,
            Some(InfoData::Netkit(netkit(peer, *mode))),
        ),
        NewKind::Single(kind, data) => (kind.clone(), data.clone()),
    };
    let mut info = vec![LinkInfo::Kind(kind)];
    if let Some(data) = data {
        info.push(LinkInfo::Data(data));
    }
    message.attributes.push(LinkAttribute::LinkInfo(info));
    emit(&message, out);
}

/// Writes the body of `RTM_SETLINK` that sets these attributes on the existing link with this
/// index.
pub fn complete(index: u32, link: &NewLink<'_>, out: &mut Vec<u8>) {
    let mut message = message(link);
    message.header.index = index;
    emit(&message, out);
}

/// Returns the attributes of a netkit. Both ends accept all packets if no program is attached.
/// Scrubbing of packets to another namespace and head room keep the kernel's defaults, which match
/// veth.
fn netkit(peer: &NewLink<'_>, mode: NetkitMode) -> Vec<InfoNetkit> {
    let pass = NetkitPolicy::Pass;
    let peer = InfoNetkit::Peer(message(peer));
    vec![
        InfoNetkit::Mode(mode),
        InfoNetkit::Policy(pass),
        InfoNetkit::PeerPolicy(pass),
        peer,
    ]
}

/// Writes the body of `RTM_SETLINK` that renames the link with this index, and then sets it up if
/// `up`.
pub fn rename(index: u32, name: &IfName, up: bool, out: &mut Vec<u8>) {
    complete(
        index,
        &NewLink {
            name: Some(name),
            up,
            ..NewLink::default()
        },
        out,
    );
}

/// Writes the body of `RTM_SETLINK` that moves the link with this index to the namespace
/// `link.netns`. Without `link.netns`, the link is not moved. The same request then sets the
/// attributes in `link` and the alias. A move sets the link down. If `link.up` is true, the request
/// sets the link up again.
pub fn moved(index: u32, link: &NewLink<'_>, alias: &str, out: &mut Vec<u8>) {
    let mut message = message(link);
    message.header.index = index;
    message
        .attributes
        .push(LinkAttribute::IfAlias(alias.to_owned()));
    emit(&message, out);
}

fn with(index: u32, attributes: Vec<LinkAttribute>, out: &mut Vec<u8>) {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    emit(&message, out);
}

fn named(name: &IfName) -> LinkAttribute {
    LinkAttribute::IfName(name.to_string())
}

/// Writes the body of `RTM_GETLINK` or `RTM_DELLINK` by index.
pub fn by_index(index: u32, out: &mut Vec<u8>) {
    with(index, Vec::new(), out);
}

/// Writes the body of `RTM_GETLINK` by name. The reply omits the link's counters, which would be
/// most of the reply.
pub fn get_by_name(name: &IfName, out: &mut Vec<u8>) {
    with(
        0,
        vec![
            named(name),
            LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]),
        ],
        out,
    );
}

/// Writes the body of `RTM_DELLINK` by name.
pub fn by_name(name: &IfName, out: &mut Vec<u8>) {
    with(0, vec![named(name)], out);
}

/// Writes the body of `RTM_GETLINK` by an alternative name. The reply omits the link's counters.
pub fn get_by_alt_name(name: &LinkName, out: &mut Vec<u8>) {
    let name = LinkAttribute::Other(DefaultNla::new(
        libc::IFLA_ALT_IFNAME,
        [name.as_str().as_bytes(), &[0]].concat(),
    ));
    with(
        0,
        vec![
            name,
            LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]),
        ],
        out,
    );
}

/// Writes the body of `RTM_NEWLINKPROP` or `RTM_DELLINKPROP`: an alternative name of the link with
/// this index.
pub fn alt_name(index: u32, name: &str, out: &mut Vec<u8>) {
    with(
        index,
        vec![LinkAttribute::PropList(vec![Prop::AltIfName(
            name.to_owned(),
        )])],
        out,
    );
}

/// Writes the body of `RTM_NEWLINK` that sets the master of the link with this index. A `master` of
/// 0 removes the link from its master.
pub fn set_master(index: u32, master: u32, out: &mut Vec<u8>) {
    with(index, vec![LinkAttribute::Controller(master)], out);
}

/// Writes the body of `RTM_SETLINK` that puts a link into a group.
pub fn into_group(name: &IfName, group: u32, out: &mut Vec<u8>) {
    with(0, vec![named(name), LinkAttribute::Group(group)], out);
}

/// Writes the body of `RTM_SETLINK` that puts the link with this index into a group.
pub fn into_group_by_index(index: u32, group: u32, out: &mut Vec<u8>) {
    with(index, vec![LinkAttribute::Group(group)], out);
}

/// Writes the body of `RTM_DELLINK` for all links in a group.
pub fn by_group(group: u32, out: &mut Vec<u8>) {
    with(0, vec![LinkAttribute::Group(group)], out);
}

/// Writes the body of `RTM_GETLINK` for a dump of all links.
pub fn link_dump(out: &mut Vec<u8>) {
    emit(&LinkMessage::default(), out);
}

/// Writes the body of `RTM_GETLINK` for a dump of all links in another namespace. `netns` is its id
/// in the socket's namespace (Linux 4.15).
pub fn link_dump_of(netns: i32, out: &mut Vec<u8>) {
    with(
        0,
        vec![LinkAttribute::Other(DefaultNla::new(
            TARGET_NETNSID,
            netns.to_ne_bytes().to_vec(),
        ))],
        out,
    );
}

/// Parses `RTM_NEWLINK` and returns the link's hardware type (`ARPHRD_*`).
pub fn hardware(body: &[u8]) -> Option<u16> {
    u16_of(body.get(2..4)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netlink::find;
    use crate::sys::rtnl::{text_of, u32_in};

    /// Attribute types from `include/uapi/linux/if_link.h`.
    const ADDRESS: u16 = 1;
    const IFNAME: u16 = 3;
    const LINKINFO: u16 = 18;
    const NUM_TX_QUEUES: u16 = 31;
    const NETNS_FD: u16 = 28;
    const KIND: u16 = 1;
    const DATA: u16 = 2;
    const PEER_INFO: u16 = 1;
    const PRIMARY: u16 = 2;
    const POLICY: u16 = 3;
    const PEER_POLICY: u16 = 4;
    const MODE: u16 = 5;
    /// Length of `struct ifinfomsg`.
    const HEAD: usize = 16;

    #[test]
    fn netkit_request_matches_the_kernels_attributes() {
        let [name, peer] = ["nk1", "eth0"].map(|text| IfName::parse(text).expect("a name"));
        let mac = |last| Some(Mac([2, 0, 0, 0, 0, last]));
        let new = NewLink {
            name: Some(&name),
            mac: mac(1),
            ..NewLink::default()
        };
        let other = NewLink {
            name: Some(&peer),
            mac: mac(2),
            netns: Some(7),
            ..NewLink::default()
        };
        for (mode, number) in [(NetkitMode::L2, 0), (NetkitMode::L3, 1)] {
            let mut body = Vec::new();
            new_link(&new, &NewKind::Netkit(other, mode), &mut body);
            let attr = |kind| find(kind, &body[HEAD..]);
            assert_eq!(attr(IFNAME).map(text_of).as_deref(), Some("nk1"));
            assert_eq!(attr(ADDRESS), Some(&[2, 0, 0, 0, 0, 1][..]));
            assert_eq!(
                attr(NUM_TX_QUEUES),
                None,
                "a netkit has one queue unless it is told"
            );
            let info = attr(LINKINFO).expect("a kind");
            assert_eq!(find(KIND, info).map(text_of).as_deref(), Some("netkit"));
            let data = find(DATA, info).expect("what a netkit alone has");
            assert_eq!(u32_in(MODE, data), Some(number));
            assert_eq!(
                [u32_in(POLICY, data), u32_in(PEER_POLICY, data)],
                [Some(0); 2]
            );
            assert_eq!(find(PRIMARY, data), None, "the kernel refuses who sets it");
            let peer = find(PEER_INFO, data).expect("the other end");
            assert_eq!(
                find(IFNAME, &peer[HEAD..]).map(text_of).as_deref(),
                Some("eth0")
            );
            assert_eq!(find(ADDRESS, &peer[HEAD..]), Some(&[2, 0, 0, 0, 0, 2][..]));
            assert_eq!(u32_in(NETNS_FD, &peer[HEAD..]), Some(7));
        }
    }
}
