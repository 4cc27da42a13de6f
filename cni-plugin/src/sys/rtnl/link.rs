//! Links: requests to make, change, delete and show them, and what the kernel shows.

use super::{emit, text_of, u16_of, u32_of};
use crate::name::{IfName, Mac};
use crate::plan::facts::LinkFact;
use crate::plan::thing::LinkAttr;
use crate::plan::thing::link::{IpvlanMode, MacvlanMode};
use crate::plan::thing::vlan::Vlan;
use crate::sys::netlink::{attr, attributes_of, find, nest};
use netlink_packet_core::DefaultNla;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{
    AfSpecBridge, BridgeVlanInfo, BridgeVlanInfoFlags, InfoBridge, InfoBridgePort, InfoData, InfoIpVlan, InfoKind,
    InfoMacVlan, InfoPortData, InfoPortKind, InfoVeth, IpVlanMode, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo,
    LinkMessage, MacVlanMode,
};
use std::os::fd::RawFd;

/// Attributes of `RTM_NEWLINK` that are read back (`include/uapi/linux/if_link.h`).
mod ifla {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const IFNAME: u16 = 3;
    pub(super) const MTU: u16 = 4;
    pub(super) const LINK: u16 = 5;
    pub(super) const MASTER: u16 = 10;
    pub(super) const TXQLEN: u16 = 13;
    pub(super) const OPERSTATE: u16 = 16;
    pub(super) const LINKINFO: u16 = 18;
    pub(super) const IFALIAS: u16 = 20;
    pub(super) const AF_SPEC: u16 = 26;
    pub(super) const LINK_NETNSID: u16 = 37;
    pub(super) const GSO_MAX_SIZE: u16 = 41;
    pub(super) const MIN_MTU: u16 = 50;
    pub(super) const MAX_MTU: u16 = 51;
    pub(super) const INFO_KIND: u16 = 1;
    pub(super) const INFO_DATA: u16 = 2;
    pub(super) const INFO_SLAVE_KIND: u16 = 4;
    pub(super) const INFO_SLAVE_DATA: u16 = 5;
    pub(super) const BR_STP_STATE: u16 = 5;
    pub(super) const BR_VLAN_FILTERING: u16 = 7;
    pub(super) const BR_BRIDGE_ID: u16 = 11;
    pub(super) const BR_VLAN_DEFAULT_PVID: u16 = 39;
    pub(super) const BRPORT_MODE: u16 = 4;
    pub(super) const BRPORT_ISOLATED: u16 = 33;
    pub(super) const BRIDGE_VLAN_INFO: u16 = 2;
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const IFF_UP: u32 = 0x1;
const IFF_RUNNING: u32 = 0x40;
const IFF_PROMISC: u32 = 0x100;
const IFF_ALLMULTI: u32 = 0x200;
/// `IF_OPER_UP` of RFC 2863. A link with a carrier has `IF_OPER_UNKNOWN` until the kernel has dealt with its first one.
const OPER_UP: u8 = 6;
/// Length of `struct ifinfomsg`.
const INFO_LEN: usize = 16;

/// What the common part of a new link needs besides its kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewLink<'a> {
    /// Final name.
    pub name: Option<&'a IfName>,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Set up at once.
    pub up: bool,
    /// Index of the bridge it becomes a port of.
    pub master: Option<u32>,
    /// Namespace it appears in, if not the socket's.
    pub netns: Option<RawFd>,
    /// Index of its parent.
    pub parent: Option<u32>,
    /// Length of the transmit queue in packets.
    pub tx_queue_len: Option<u32>,
    /// One queue each way: a virtual link has no use for more, and each costs two RCU grace periods at creation.
    pub one_queue: bool,
}

/// What a new link is, with the indexes that its kind needs.
#[derive(Debug)]
pub enum NewKind<'a> {
    /// A pair; the other end.
    Veth(NewLink<'a>),
    /// A bridge.
    Bridge {
        /// Ports are separated by VLAN.
        vlan_filtering: bool,
    },
    /// A macvlan.
    Macvlan(MacvlanMode, Option<u32>),
    /// An ipvlan.
    Ipvlan(IpvlanMode),
    /// An ifb.
    Ifb,
}

fn message(link: &NewLink<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    let attributes = &mut message.attributes;
    attributes.extend(link.name.map(|name| LinkAttribute::IfName(name.to_string())));
    attributes.extend(link.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
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

/// Body of `RTM_NEWLINK` for a new link.
pub fn new_link(link: &NewLink<'_>, kind: &NewKind<'_>, out: &mut Vec<u8>) {
    let mut message = message(link);
    let (kind, data) = match kind {
        NewKind::Veth(peer) => (InfoKind::Veth, Some(InfoData::Veth(InfoVeth::Peer(self::message(peer))))),
        NewKind::Bridge { vlan_filtering } => {
            let data = vlan_filtering.then(|| InfoData::Bridge(vec![InfoBridge::VlanFiltering(true)]));
            (InfoKind::Bridge, data)
        }
        NewKind::Ifb => (InfoKind::Ifb, None),
        NewKind::Macvlan(mode, bc_queue_len) => {
            let mut data = vec![InfoMacVlan::Mode(match mode {
                MacvlanMode::Private => MacVlanMode::Private,
                MacvlanMode::Vepa => MacVlanMode::Vepa,
                MacvlanMode::Bridge => MacVlanMode::Bridge,
                MacvlanMode::Passthru => MacVlanMode::Passthrough,
            })];
            data.extend(bc_queue_len.map(InfoMacVlan::BcQueueLen));
            (InfoKind::MacVlan, Some(InfoData::MacVlan(data)))
        }
        NewKind::Ipvlan(mode) => {
            let mode = match mode {
                IpvlanMode::L2 => IpVlanMode::L2,
                IpvlanMode::L3 => IpVlanMode::L3,
                IpvlanMode::L3s => IpVlanMode::L3S,
            };
            (InfoKind::IpVlan, Some(InfoData::IpVlan(vec![InfoIpVlan::Mode(mode)])))
        }
    };
    let mut info = vec![LinkInfo::Kind(kind)];
    info.extend(data.map(LinkInfo::Data));
    message.attributes.push(LinkAttribute::LinkInfo(info));
    emit(&message, out);
}

/// `IPV4_DEVCONF_ARP_NOTIFY` (include/uapi/linux/ip.h).
const ARP_NOTIFY: u16 = 22;

/// `IFLA_AF_SPEC` with one value of `/proc/sys/net/ipv4/conf/<link>`: family, then `IFLA_INET_CONF`, then the value.
fn ipv4_devconf(which: u16, value: u32) -> LinkAttribute {
    const INET_CONF: u16 = 1;
    let mut spec = Vec::new();
    nest(AF_INET, &mut spec, |out| nest(INET_CONF, out, |out| attr(which, &value.to_ne_bytes(), out)));
    LinkAttribute::Other(DefaultNla::new(ifla::AF_SPEC, spec))
}

/// Body of `RTM_SETLINK` that gives the link with this index another name, and sets it up then if asked to.
pub fn rename(index: u32, name: &IfName, up: bool, out: &mut Vec<u8>) {
    let mut message = message(&NewLink { name: Some(name), up, ..NewLink::default() });
    message.header.index = index;
    emit(&message, out);
}

/// Body of `RTM_NEWLINK` that sets attributes of the link with this index.
pub fn set_attrs<'a>(index: u32, attrs: impl IntoIterator<Item = &'a LinkAttr>, out: &mut Vec<u8>) {
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
        LinkAttr::Mac(mac) | LinkAttr::Announce(mac) => message.attributes.push(LinkAttribute::Address(mac.0.to_vec())),
        LinkAttr::Mtu(mtu) => message.attributes.push(LinkAttribute::Mtu(*mtu)),
        LinkAttr::TxQueueLen(len) => message.attributes.push(LinkAttribute::TxQueueLen(*len)),
        LinkAttr::GsoMaxSize(size) => message.attributes.push(LinkAttribute::GsoMaxSize(*size)),
        LinkAttr::Alias(text) => message.attributes.push(LinkAttribute::IfAlias(text.clone())),
        LinkAttr::Hairpin(on) => message.attributes.push(port(InfoBridgePort::HairpinMode(*on))),
        LinkAttr::ArpNotify(on) => message.attributes.push(ipv4_devconf(ARP_NOTIFY, u32::from(*on))),
        LinkAttr::Isolated(on) => message.attributes.push(port(InfoBridgePort::Isolated(*on))),
    }
}

/// Body of `RTM_SETLINK` or `RTM_DELLINK`, family bridge, for one VLAN of a port.
pub fn vlan(index: u32, vlan: &Vlan, out: &mut Vec<u8>) {
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Bridge;
    message.header.index = index;
    let mut flags = BridgeVlanInfoFlags::empty();
    flags.set(BridgeVlanInfoFlags::Pvid, vlan.pvid);
    flags.set(BridgeVlanInfoFlags::Untagged, vlan.untagged);
    let info = AfSpecBridge::VlanInfo(BridgeVlanInfo { vid: vlan.id, flags });
    message.attributes.push(LinkAttribute::AfSpecBridge(vec![info]));
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

/// Body of `RTM_GETLINK` or `RTM_DELLINK` by index.
pub fn by_index(index: u32, out: &mut Vec<u8>) {
    with(index, Vec::new(), out);
}

/// Body of `RTM_GETLINK` by name, without the counters, which are most of the answer.
pub fn get_by_name(name: &IfName, out: &mut Vec<u8>) {
    with(0, vec![named(name), LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])], out);
}

/// Body of `RTM_DELLINK` by name.
pub fn by_name(name: &IfName, out: &mut Vec<u8>) {
    with(0, vec![named(name)], out);
}

/// Body of `RTM_SETLINK` that puts a link into a group.
pub fn into_group(name: &IfName, group: u32, out: &mut Vec<u8>) {
    with(0, vec![named(name), LinkAttribute::Group(group)], out);
}

/// Body of `RTM_DELLINK` for all links of a group.
pub fn by_group(group: u32, out: &mut Vec<u8>) {
    with(0, vec![LinkAttribute::Group(group)], out);
}

/// Body of `RTM_GETLINK` for a dump of all bridge ports' VLANs.
pub fn vlan_dump(out: &mut Vec<u8>) {
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Bridge;
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::Brvlan]));
    emit(&message, out);
}

/// Body of `RTM_GETLINK` for a dump of all links.
pub fn link_dump(out: &mut Vec<u8>) {
    emit(&LinkMessage::default(), out);
}

/// Reads `RTM_NEWLINK`: what the link's frames begin with, as `ARPHRD_*`.
pub fn hardware(body: &[u8]) -> Option<u16> {
    u16_of(body.get(2..4)?)
}

/// Reads `RTM_NEWLINK`: the link's name and what is known of it.
pub fn parse(body: &[u8]) -> Option<(String, LinkFact)> {
    let head = body.first_chunk::<INFO_LEN>()?;
    let index = u32_of(&head[4..8])?;
    let flags = u32_of(&head[8..12])?;
    let mut name = String::new();
    let mut fact = LinkFact::planned("", None, 0, flags & IFF_UP != 0);
    fact.index = index;
    fact.running = flags & IFF_RUNNING != 0;
    fact.promisc = flags & IFF_PROMISC != 0;
    fact.all_multi = flags & IFF_ALLMULTI != 0;
    for (kind, value) in attributes_of(&body[INFO_LEN..]) {
        match kind {
            ifla::IFNAME => name = text_of(value),
            ifla::ADDRESS => fact.mac = mac_of(value),
            ifla::MTU => fact.mtu = u32_of(value)?,
            ifla::MIN_MTU => fact.mtus = u32_of(value)?..=*fact.mtus.end(),
            // 0 is no bound but that of the kernel's signed number.
            ifla::MAX_MTU => {
                let most = u32_of(value).filter(|most| *most > 0).unwrap_or(i32::MAX.unsigned_abs());
                fact.mtus = *fact.mtus.start()..=most;
            }
            ifla::LINK => fact.parent = u32_of(value),
            ifla::LINK_NETNSID => fact.parent_netns = u32_of(value).map(u32::cast_signed),
            ifla::MASTER => fact.master = u32_of(value),
            ifla::TXQLEN => fact.tx_queue_len = u32_of(value)?,
            ifla::GSO_MAX_SIZE => fact.gso_max_size = u32_of(value)?,
            ifla::OPERSTATE => fact.oper_up = value.first() == Some(&OPER_UP),
            ifla::IFALIAS => fact.alias = text_of(value),
            ifla::AF_SPEC => fact.has_ipv6 = is_ipv6_on(value),
            ifla::LINKINFO => link_info(value, &mut fact),
            _ => {}
        }
    }
    Some((name, fact))
}

/// By `DEVCONF_DISABLE_IPV6` of `IFLA_INET6_CONF` (include/uapi/linux/ipv6.h): as `/proc/sys/net/ipv6/conf/<link>` has it.
fn is_ipv6_on(spec: &[u8]) -> Option<bool> {
    const INET6_CONF: u16 = 2;
    const DISABLE_IPV6: usize = 26;
    let values = find(INET6_CONF, find(AF_INET6, spec)?)?;
    values.get(4 * DISABLE_IPV6..).and_then(u32_of).map(|value| value == 0)
}

fn mac_of(value: &[u8]) -> Option<Mac> {
    value.try_into().ok().filter(|bytes| *bytes != [0; 6]).map(Mac)
}

fn link_info(info: &[u8], fact: &mut LinkFact) {
    let mut data: &[u8] = &[];
    let mut port: &[u8] = &[];
    let mut port_kind = String::new();
    for (kind, value) in attributes_of(info) {
        match kind {
            ifla::INFO_KIND => fact.kind = text_of(value),
            ifla::INFO_DATA => data = value,
            ifla::INFO_SLAVE_KIND => port_kind = text_of(value),
            ifla::INFO_SLAVE_DATA => port = value,
            _ => {}
        }
    }
    let first = find(1, data);
    match fact.kind.as_str() {
        "macvlan" => fact.mode = first.and_then(u32_of).and_then(macvlan_mode),
        "ipvlan" => fact.mode = first.and_then(u16_of).and_then(ipvlan_mode),
        "bridge" => {
            for (kind, value) in attributes_of(data) {
                match kind {
                    ifla::BR_STP_STATE => fact.stp = u32_of(value) != Some(0),
                    ifla::BR_VLAN_FILTERING => fact.vlan_filtering = value.first() == Some(&1),
                    // Two bytes of priority stand before it.
                    ifla::BR_BRIDGE_ID => fact.bridge_id = value.get(2..).and_then(mac_of),
                    ifla::BR_VLAN_DEFAULT_PVID => fact.default_pvid = u16_of(value).unwrap_or(fact.default_pvid),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    if port_kind == "bridge" {
        let is_on = |option| attributes_of(port).any(|(kind, value)| kind == option && value.first() == Some(&1));
        fact.hairpin = is_on(ifla::BRPORT_MODE);
        fact.isolated = is_on(ifla::BRPORT_ISOLATED);
    }
}

fn macvlan_mode(mode: u32) -> Option<&'static str> {
    Some(match mode {
        1 => "private",
        2 => "vepa",
        4 => "bridge",
        8 => "passthru",
        16 => "source",
        _ => return None,
    })
}

fn ipvlan_mode(mode: u16) -> Option<&'static str> {
    ["l2", "l3", "l3s"].get(usize::from(mode)).copied()
}

/// Reads `RTM_NEWLINK` of family bridge: the port's index and its VLANs.
pub fn parse_vlans(body: &[u8]) -> Option<(u32, Vec<Vlan>)> {
    const PVID: u16 = 0x2;
    const UNTAGGED: u16 = 0x4;
    let head = body.first_chunk::<INFO_LEN>()?;
    let vlans = attributes_of(find(ifla::AF_SPEC, &body[INFO_LEN..])?)
        .filter(|(kind, _)| *kind == ifla::BRIDGE_VLAN_INFO)
        .filter_map(|(_, value)| {
            let (flags, id) = (u16_of(value)?, u16_of(value.get(2..)?)?);
            Some(Vlan { id, pvid: flags & PVID != 0, untagged: flags & UNTAGGED != 0 })
        })
        .collect();
    Some((u32_of(&head[4..8])?, vlans))
}
