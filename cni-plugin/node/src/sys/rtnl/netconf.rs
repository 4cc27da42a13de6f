//! IPv4 and IPv6 settings of a namespace, as far as netlink reports them (Linux 3.8).

use super::u32_of;
use crate::sys::netlink::{attr, attributes_of};

/// IPv4.
pub const AF_INET: u8 = 2;
/// IPv6.
pub const AF_INET6: u8 = 10;
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
/// Index for all links (`NETCONFA_IFINDEX_ALL`).
const ALL: i32 = -1;
/// Length of `struct netconfmsg`, with padding before the attributes.
const INFO_LEN: usize = 4;

/// Writes the body of `RTM_GETNETCONF` for the settings that apply to all links.
pub fn of_all(family: u8, out: &mut Vec<u8>) {
    out.extend([family, 0, 0, 0]);
    attr(NETCONFA_IFINDEX, &ALL.to_ne_bytes(), out);
}

/// Parses `RTM_NEWNETCONF` and returns true if forwarding is enabled.
pub fn forwards(body: &[u8]) -> bool {
    let attributes = body.get(INFO_LEN..).unwrap_or_default();
    attributes_of(attributes)
        .any(|(kind, value)| kind == NETCONFA_FORWARDING && u32_of(value) == Some(1))
}
