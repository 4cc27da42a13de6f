//! Names and addresses in nf_tables keys.

use braid_core::name::IfName;
use std::net::IpAddr;

/// Name of both tables, `inet braid` and `bridge braid`.
pub(crate) const TABLE: &str = "braid";

/// Length of a link's name in a key.
pub(crate) const IFNAME_LEN: usize = 16;

/// Converts a link's name to the form that the kernel compares.
pub(crate) fn name(link: &IfName) -> [u8; IFNAME_LEN] {
    let mut bytes = [0; IFNAME_LEN];
    bytes[..link.as_str().len()].copy_from_slice(link.as_str().as_bytes());
    bytes
}

/// Parses the link's name at the start of a key.
pub(crate) fn ifname(key: &[u8]) -> Option<IfName> {
    let name = std::str::from_utf8(key.get(..IFNAME_LEN)?).ok()?;
    IfName::parse(name.trim_end_matches('\0')).ok()
}

/// Converts an address to the bytes in a packet.
pub(crate) fn bytes(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

/// Converts the kernel's bytes to an address.
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    let v6 = bytes.first_chunk::<16>()?;
    Some((*v6).into())
}
