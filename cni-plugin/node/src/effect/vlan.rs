//! VLANs of bridge ports.

use super::link::{self, INFO_LEN, ifla};
use super::{Effect, Head, Transport};
use crate::kernel::Kernel;
use crate::sys::netlink::{attributes_of, find};
use crate::sys::rtnl::{self, emit, u16_of, u32_of};
use crate::{Context, Error};
use braid_core::name::IfName;
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::vlan::Vlan;
use braid_core::plan::thing::{LinkRef, PortVlan, Verb};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{
    AfSpecBridge, BridgeVlanInfo, BridgeVlanInfoFlags, LinkAttribute, LinkExtentMask, LinkMessage,
};

const BRIDGE_VLAN_INFO: u16 = 2;

impl Effect for PortVlan {
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Request
    }

    fn link(&self) -> Option<&LinkRef> {
        Some(&self.at)
    }

    fn request(&self, verb: Verb, index: u32, body: &mut Vec<u8>) -> Option<Head> {
        write(index, self.vlan, body);
        Some((verb.word(rtnl::SETLINK, rtnl::DELLINK), 0))
    }
}

/// Writes the body of `RTM_SETLINK` or `RTM_DELLINK`, family bridge, for one VLAN of a port.
fn write(index: u32, vlan: Vlan, out: &mut Vec<u8>) {
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Bridge;
    message.header.index = index;
    let mut flags = BridgeVlanInfoFlags::empty();
    flags.set(BridgeVlanInfoFlags::Pvid, vlan.pvid);
    flags.set(BridgeVlanInfoFlags::Untagged, vlan.untagged);
    let info = AfSpecBridge::VlanInfo(BridgeVlanInfo {
        vid: vlan.id,
        flags,
    });
    message
        .attributes
        .push(LinkAttribute::AfSpecBridge(vec![info]));
    emit(&message, out);
}

#[cold]
pub(crate) fn read(kernel: &mut Kernel, facts: &mut Facts) -> Result<(), Error> {
    let messages = kernel
        .host()
        .dump(rtnl::GETLINK, dump)
        .doing("list VLANs of bridge ports")?;
    for message in &messages {
        let Some((_, vlans)) = parse(&message.body) else {
            continue;
        };
        let Some((name, _)) = link::parse(&message.body) else {
            continue;
        };
        if let Ok(name) = IfName::parse(&name) {
            facts.vlans.insert(name, vlans);
        }
    }
    Ok(())
}

/// Writes the body of `RTM_GETLINK` for a dump of all bridge ports' VLANs.
fn dump(out: &mut Vec<u8>) {
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Bridge;
    message
        .attributes
        .push(LinkAttribute::ExtMask(vec![LinkExtentMask::Brvlan]));
    emit(&message, out);
}

/// Parses `RTM_NEWLINK` of family bridge: the port's index and its VLANs.
fn parse(body: &[u8]) -> Option<(u32, Vec<Vlan>)> {
    let head = body.first_chunk::<INFO_LEN>()?;
    let mut vlans = Vec::new();
    for (kind, value) in attributes_of(find(ifla::AF_SPEC, &body[INFO_LEN..])?) {
        if kind == BRIDGE_VLAN_INFO {
            vlans.extend(parse_vlan(value));
        }
    }
    Some((u32_of(&head[4..8])?, vlans))
}

/// Parses `struct bridge_vlan_info` (`include/uapi/linux/if_bridge.h`).
fn parse_vlan(info: &[u8]) -> Option<Vlan> {
    const PVID: u16 = 0x2;
    const UNTAGGED: u16 = 0x4;
    let flags = u16_of(info)?;
    Some(Vlan {
        id: u16_of(info.get(2..)?)?,
        pvid: flags & PVID != 0,
        untagged: flags & UNTAGGED != 0,
    })
}
