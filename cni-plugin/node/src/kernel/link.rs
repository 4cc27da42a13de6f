//! Links read from rtnetlink.

use crate::sys::netlink::{KernelError, Socket, attributes_of, find};
use crate::sys::rtnl::link::{by_index, link_dump};
use crate::sys::rtnl::{self, ip_of, text_of, u16_of, u32_in, u32_of};
use braid_core::name::Mac;
use braid_core::plan::facts::LinkFact;
use braid_core::plan::thing::link::{learning_word, remote_word};
use nix::errno::Errno;

/// Attributes of `RTM_NEWLINK` that are read (`include/uapi/linux/if_link.h`).
pub(crate) mod ifla {
    pub(crate) const ADDRESS: u16 = 1;
    pub(crate) const IFNAME: u16 = 3;
    pub(crate) const MTU: u16 = 4;
    pub(crate) const LINK: u16 = 5;
    pub(crate) const MASTER: u16 = 10;
    pub(crate) const TXQLEN: u16 = 13;
    pub(crate) const OPERSTATE: u16 = 16;
    pub(crate) const LINKINFO: u16 = 18;
    pub(crate) const IFALIAS: u16 = 20;
    pub(crate) const STATS64: u16 = 23;
    pub(crate) const AF_SPEC: u16 = 26;
    pub(crate) const LINK_NETNSID: u16 = 37;
    pub(crate) const GSO_MAX_SIZE: u16 = 41;
    pub(crate) const MIN_MTU: u16 = 50;
    pub(crate) const MAX_MTU: u16 = 51;
    pub(crate) const PROP_LIST: u16 = 52;
    pub(crate) const ALT_IFNAME: u16 = 53;
    pub(crate) const PERM_ADDRESS: u16 = 54;
    pub(crate) const PARENT_DEV_NAME: u16 = 56;
    pub(crate) const INFO_KIND: u16 = 1;
    pub(crate) const INFO_DATA: u16 = 2;
    pub(crate) const INFO_SLAVE_KIND: u16 = 4;
    pub(crate) const INFO_SLAVE_DATA: u16 = 5;
    pub(crate) const BR_STP_STATE: u16 = 5;
    pub(crate) const BR_VLAN_FILTERING: u16 = 7;
    pub(crate) const BR_BRIDGE_ID: u16 = 11;
    pub(crate) const BR_VLAN_DEFAULT_PVID: u16 = 39;
    pub(crate) const MACVLAN_MODE: u16 = 1;
    pub(crate) const IPVLAN_MODE: u16 = 1;
    pub(crate) const TUN_TYPE: u16 = 3;
    pub(crate) const VLAN_ID: u16 = 1;
    pub(crate) const NETKIT_MODE: u16 = 5;
    pub(crate) const VXLAN_ID: u16 = 1;
    pub(crate) const VXLAN_GROUP: u16 = 2;
    pub(crate) const VXLAN_LOCAL: u16 = 4;
    pub(crate) const VXLAN_TTL: u16 = 5;
    pub(crate) const VXLAN_LEARNING: u16 = 7;
    pub(crate) const VXLAN_PORT: u16 = 15;
    pub(crate) const VXLAN_GROUP6: u16 = 16;
    pub(crate) const VXLAN_LOCAL6: u16 = 17;
    pub(crate) const VRF_TABLE: u16 = 1;
    pub(crate) const BRPORT_MODE: u16 = 4;
    pub(crate) const BRPORT_ISOLATED: u16 = 33;
}

const AF_INET6: u16 = 10;
const IFF_UP: u32 = 0x1;
const IFF_RUNNING: u32 = 0x40;
const IFF_LOWER_UP: u32 = 0x1_0000;
const IFF_PROMISC: u32 = 0x100;
const IFF_ALLMULTI: u32 = 0x200;
/// `IF_OPER_UP` (RFC 2863). A link with a carrier has `IF_OPER_UNKNOWN` until the kernel has
/// processed its first carrier event.
const OPER_UP: u8 = 6;
/// Length of `struct ifinfomsg`.
pub(crate) const INFO_LEN: usize = 16;

/// Returns the link with this index; `None` if it does not exist.
pub(crate) fn of_index(socket: &mut Socket, index: u32) -> Result<Option<LinkFact>, KernelError> {
    match socket.get(rtnl::GETLINK, |out| by_index(index, out)) {
        Err(err) if err.errno == Errno::ENODEV => Ok(None),
        answer => Ok(parse_fact(&answer?.body)),
    }
}

/// Returns all links with their names.
pub fn list(socket: &mut Socket) -> Result<Vec<(String, LinkFact)>, KernelError> {
    let mut links = Vec::new();
    for message in socket.dump(rtnl::GETLINK, link_dump)? {
        links.extend(parse(&message.body));
    }
    Ok(links)
}

/// Parses `RTM_NEWLINK`: the link's properties.
pub(super) fn parse_fact(body: &[u8]) -> Option<LinkFact> {
    let (_, fact) = parse(body)?;
    Some(fact)
}

/// Parses `RTM_NEWLINK`: the link's name and properties.
pub(crate) fn parse(body: &[u8]) -> Option<(String, LinkFact)> {
    let head = body.first_chunk::<INFO_LEN>()?;
    let index = u32_of(&head[4..8])?;
    let flags = u32_of(&head[8..12])?;
    let mut name = String::new();
    let mut fact = LinkFact::planned("", None, 0, flags & IFF_UP != 0);
    fact.index = index;
    fact.running = flags & IFF_RUNNING != 0;
    fact.carrier = flags & IFF_LOWER_UP != 0;
    fact.promisc = flags & IFF_PROMISC != 0;
    fact.all_multi = flags & IFF_ALLMULTI != 0;
    for (kind, value) in attributes_of(&body[INFO_LEN..]) {
        match kind {
            ifla::IFNAME => name = text_of(value),
            ifla::ADDRESS => fact.mac = mac_of(value),
            ifla::MTU => fact.mtu = u32_of(value)?,
            ifla::MIN_MTU => fact.mtus = u32_of(value)?..=*fact.mtus.end(),
            // 0 means no limit but the kernel's signed integer.
            ifla::MAX_MTU => {
                let most = match u32_of(value) {
                    Some(most) if most > 0 => most,
                    _ => i32::MAX.unsigned_abs(),
                };
                fact.mtus = *fact.mtus.start()..=most;
            }
            ifla::LINK => fact.parent = u32_of(value),
            ifla::LINK_NETNSID => fact.parent_netns = u32_of(value).map(u32::cast_signed),
            ifla::MASTER => fact.master = u32_of(value),
            ifla::TXQLEN => fact.tx_queue_len = u32_of(value)?,
            ifla::GSO_MAX_SIZE => fact.gso_max_size = u32_of(value)?,
            ifla::OPERSTATE => fact.oper_up = value.first() == Some(&OPER_UP),
            ifla::IFALIAS => fact.alias = text_of(value),
            ifla::PROP_LIST => fact.alt_names = alt_names(value),
            ifla::PERM_ADDRESS => fact.hardware.permanent = mac_of(value),
            ifla::PARENT_DEV_NAME => fact.hardware.device = text_of(value),
            ifla::AF_SPEC => fact.has_ipv6 = is_ipv6_on(value),
            ifla::LINKINFO => link_info(value, &mut fact),
            _ => {}
        }
    }
    Some((name, fact))
}

fn alt_names(list: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    for (kind, name) in attributes_of(list) {
        if kind == ifla::ALT_IFNAME {
            names.push(text_of(name));
        }
    }
    names
}

/// Parses `IFLA_INET6_CONF` and returns true if IPv6 is enabled on the link; `None` if the
/// attribute is missing. `DEVCONF_DISABLE_IPV6` (include/uapi/linux/ipv6.h) is the value of
/// `/proc/sys/net/ipv6/conf/<link>/disable_ipv6`.
fn is_ipv6_on(spec: &[u8]) -> Option<bool> {
    const INET6_CONF: u16 = 2;
    const DISABLE_IPV6: usize = 26;
    let values = find(INET6_CONF, find(AF_INET6, spec)?)?;
    let value = u32_of(values.get(4 * DISABLE_IPV6..)?)?;
    Some(value == 0)
}

fn mac_of(value: &[u8]) -> Option<Mac> {
    let bytes: [u8; 6] = value.try_into().ok()?;
    (bytes != [0; 6]).then_some(Mac(bytes))
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
    match fact.kind.as_str() {
        "macvlan" => fact.mode = macvlan_mode(data),
        "ipvlan" => fact.mode = ipvlan_mode(data),
        "tun" => fact.mode = tun_mode(data),
        "netkit" => fact.mode = netkit_mode(data),
        "vlan" => fact.settings.extend(vlan_setting(data)),
        "vxlan" => fact.settings = vxlan(data),
        "vrf" => fact.vrf_table = u32_in(ifla::VRF_TABLE, data),
        "bridge" => bridge(data, fact),
        _ => {}
    }
    if port_kind == "bridge" {
        let is_on = |option| {
            attributes_of(port).any(|(kind, value)| kind == option && value.first() == Some(&1))
        };
        fact.hairpin = is_on(ifla::BRPORT_MODE);
        fact.isolated = is_on(ifla::BRPORT_ISOLATED);
    }
}

fn bridge(data: &[u8], fact: &mut LinkFact) {
    for (kind, value) in attributes_of(data) {
        match kind {
            ifla::BR_STP_STATE => fact.stp = u32_of(value) != Some(0),
            ifla::BR_VLAN_FILTERING => fact.vlan_filtering = value.first() == Some(&1),
            // The address follows two bytes of priority.
            ifla::BR_BRIDGE_ID => fact.bridge_id = value.get(2..).and_then(mac_of),
            ifla::BR_VLAN_DEFAULT_PVID => {
                fact.default_pvid = u16_of(value).unwrap_or(fact.default_pvid);
            }
            _ => {}
        }
    }
}

fn vlan_setting(data: &[u8]) -> Option<(&'static str, String)> {
    let id = u16_of(find(ifla::VLAN_ID, data)?)?;
    Some(("id", id.to_string()))
}

fn vxlan(data: &[u8]) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    for (kind, value) in attributes_of(data) {
        settings.extend(vxlan_setting(kind, value));
    }
    settings
}

/// Converts a VXLAN attribute to an option of `ip link` and its value; `None` if braid does not
/// compare this attribute.
fn vxlan_setting(kind: u16, value: &[u8]) -> Option<(&'static str, String)> {
    Some(match kind {
        ifla::VXLAN_ID => ("id", u32_of(value)?.to_string()),
        ifla::VXLAN_GROUP | ifla::VXLAN_GROUP6 => {
            let ip = ip_of(value)?;
            (remote_word(ip), ip.to_string())
        }
        ifla::VXLAN_LOCAL | ifla::VXLAN_LOCAL6 => ("local", ip_of(value)?.to_string()),
        ifla::VXLAN_TTL => ("ttl", value.first()?.to_string()),
        ifla::VXLAN_LEARNING => ("learning", learning_word(*value.first()? != 0).to_owned()),
        ifla::VXLAN_PORT => {
            let port = u16::from_be_bytes(value.try_into().ok()?);
            ("dstport", port.to_string())
        }
        _ => return None,
    })
}

fn macvlan_mode(data: &[u8]) -> Option<&'static str> {
    Some(match u32_in(ifla::MACVLAN_MODE, data)? {
        1 => "private",
        2 => "vepa",
        4 => "bridge",
        8 => "passthru",
        16 => "source",
        _ => return None,
    })
}

fn tun_mode(data: &[u8]) -> Option<&'static str> {
    match find(ifla::TUN_TYPE, data)?.first()? {
        1 => Some("tun"),
        2 => Some("tap"),
        _ => None,
    }
}

fn netkit_mode(data: &[u8]) -> Option<&'static str> {
    match u32_in(ifla::NETKIT_MODE, data)? {
        0 => Some("l2"),
        1 => Some("l3"),
        _ => None,
    }
}

fn ipvlan_mode(data: &[u8]) -> Option<&'static str> {
    match u16_of(find(ifla::IPVLAN_MODE, data)?)? {
        0 => Some("l2"),
        1 => Some("l3"),
        2 => Some("l3s"),
        _ => None,
    }
}
