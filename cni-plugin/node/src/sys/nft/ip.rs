//! IPv4 and IPv6 in keys and rules of nf_tables.

use super::batch::{Batch, CREATE, NEWSETELEM, Part};
use super::expression::REG_1;
use super::key::bytes;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const NETWORK_HEADER: u32 = 1;
/// `NFT_SET_ELEM_INTERVAL_END`: the key is the first one after an interval.
const INTERVAL_END: u32 = 0x1;

/// Address family, by its number in nf_tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ip {
    V4 = 2,
    V6 = 10,
}

impl Ip {
    pub(crate) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn of(addr: IpAddr) -> Self {
        if addr.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Returns the first value for IPv4, the second for IPv6.
    pub(crate) fn one<T>(self, [v4, v6]: [T; 2]) -> T {
        match self {
            Self::V4 => v4,
            Self::V6 => v6,
        }
    }

    /// Returns the type of an address in a key.
    pub(crate) fn addr(self) -> Part {
        self.one([Part { kind: 7, len: 4 }, Part { kind: 8, len: 16 }])
    }

    /// Returns the register after an address of this family that starts at [`REG_1`].
    pub(crate) fn behind(self) -> u32 {
        REG_1 + self.addr().len / 4
    }
}

impl Batch {
    /// Continues the rule only if the packet is of the family `ip`.
    pub(crate) fn only(&mut self, ip: Ip) -> &mut Self {
        const META_NFPROTO: u32 = 15;
        self.meta(META_NFPROTO, REG_1).equals(REG_1, &[ip as u8])
    }

    /// Loads the source address.
    pub(crate) fn source(&mut self, ip: Ip, to: u32) -> &mut Self {
        self.payload(NETWORK_HEADER, ip.one([12, 8]), ip.addr().len, to)
    }

    /// Loads the destination address.
    pub(crate) fn destination(&mut self, ip: Ip, to: u32) -> &mut Self {
        self.payload(NETWORK_HEADER, ip.one([16, 24]), ip.addr().len, to)
    }

    /// Continues the rule only if the address in [`REG_1`] is in the subnet.
    pub(crate) fn within(&mut self, net: &IpNet) -> &mut Self {
        self.mask(REG_1, &bytes(net.netmask()))
            .equals(REG_1, &bytes(net.network()))
    }

    /// Adds a subnet to a set of intervals, which has none of its addresses yet.
    pub(crate) fn add_subnet(&mut self, set: &str, subnet: &IpNet) -> &mut Self {
        let first = bytes(subnet.network());
        self.element(NEWSETELEM, CREATE, set, &first, |_| {});
        // An interval without an end reaches to the last address.
        if let Some(after) = following(subnet.broadcast()) {
            self.element(NEWSETELEM, CREATE, set, &bytes(after), |b| {
                b.number(3, INTERVAL_END);
            });
        }
        self
    }
}

/// Returns the next address; `None` after the last one of the family.
fn following(addr: IpAddr) -> Option<IpAddr> {
    match addr {
        IpAddr::V4(addr) => Some(Ipv4Addr::from(u32::from(addr).checked_add(1)?).into()),
        IpAddr::V6(addr) => Some(Ipv6Addr::from(u128::from(addr).checked_add(1)?).into()),
    }
}
