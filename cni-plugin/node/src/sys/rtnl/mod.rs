//! Links and qdiscs over rtnetlink. Requests are built from typed messages. Replies are parsed
//! attribute by attribute.
//!
//! Replies are parsed by hand on purpose: an unknown attribute or device must not fail an ADD.

pub mod link;
pub mod netconf;
pub mod nsid;
pub mod tc;

use crate::sys::netlink::find;
use netlink_packet_core::Emitable;
use std::net::IpAddr;

/// Message type: creates or reports a link (`include/uapi/linux/rtnetlink.h`).
pub const NEWLINK: u16 = libc::RTM_NEWLINK;
/// Message type: deletes a link.
pub const DELLINK: u16 = libc::RTM_DELLINK;
/// Message type: requests links.
pub const GETLINK: u16 = libc::RTM_GETLINK;
/// Message type: changes a link or, in family bridge, its VLANs.
pub const SETLINK: u16 = libc::RTM_SETLINK;
/// Message type: adds alternative names to a link.
pub const NEWLINKPROP: u16 = 108;
/// Message type: deletes alternative names of a link.
pub const DELLINKPROP: u16 = 109;
/// Message type: requests the id of another namespace in the socket's namespace.
pub const GETNSID: u16 = libc::RTM_GETNSID;
/// Message type: adds or reports an address.
pub const NEWADDR: u16 = libc::RTM_NEWADDR;
/// Message type: deletes an address.
pub const DELADDR: u16 = libc::RTM_DELADDR;
/// Message type: requests addresses.
pub const GETADDR: u16 = libc::RTM_GETADDR;
/// Message type: adds or reports a route.
pub const NEWROUTE: u16 = libc::RTM_NEWROUTE;
/// Message type: deletes a route.
pub const DELROUTE: u16 = libc::RTM_DELROUTE;
/// Message type: requests routes.
pub const GETROUTE: u16 = libc::RTM_GETROUTE;
/// Message type: requests the settings of an address family.
pub const GETNETCONF: u16 = libc::RTM_GETNETCONF;
/// Multicast group of link changes.
pub const GROUP_LINK: u32 = 1;
/// Multicast group of IPv6 address changes.
pub const GROUP_IPV6_IFADDR: u32 = 9;

/// Appends a typed message to a request.
pub fn emit(message: &impl Emitable, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + message.buffer_len(), 0);
    message.emit(&mut out[start..]);
}

/// Returns the number in the first attribute of this kind.
pub(crate) fn u32_in(kind: u16, attrs: &[u8]) -> Option<u32> {
    u32_of(find(kind, attrs)?)
}

/// Returns the number at offset `at` of a message.
pub(crate) fn u32_at(body: &[u8], at: usize) -> Option<u32> {
    u32_of(body.get(at..)?)
}

/// Converts the first bytes to a number.
pub(crate) fn u32_of(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*value.first_chunk()?))
}

pub(crate) fn u64_of(value: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(*value.first_chunk()?))
}

pub(crate) fn u16_of(value: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*value.first_chunk()?))
}

pub(crate) fn text_of(value: &[u8]) -> String {
    String::from_utf8_lossy(value)
        .trim_end_matches('\0')
        .to_owned()
}

pub(crate) fn ip_of(value: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Some(v4.into());
    }
    let v6 = <[u8; 16]>::try_from(value).ok()?;
    Some(v6.into())
}
