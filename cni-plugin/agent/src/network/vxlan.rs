//! VXLAN links: `braid-vxlan` and flannel's. Their settings, MACs, and the family of the underlay.

use crate::cluster::config;
use crate::cluster::node::Node;
use braid_core::name::Mac;
use sha2::{Digest, Sha256};
use std::fmt::{Display, Formatter};
use std::net::IpAddr;

/// Name of the agent's own link.
pub const NAME: &str = "braid-vxlan";

/// Name of a VXLAN link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// [`NAME`].
    #[default]
    Braid,
    /// Flannel's link for IPv4, with the VXLAN network identifier.
    Flannel(u32),
    /// Flannel's link for IPv6.
    FlannelV6(u32),
}

impl Name {
    /// True for a link that flanneld may have made, and may take over.
    pub fn is_flannels(self) -> bool {
        self != Self::Braid
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Braid => f.write_str(NAME),
            Self::Flannel(id) => write!(f, "flannel.{id}"),
            Self::FlannelV6(id) => write!(f, "flannel-v6.{id}"),
        }
    }
}

/// Settings that the kernel cannot change on a link. A link with others is deleted and created
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// VXLAN network identifier.
    pub id: u32,
    /// UDP port.
    pub port: u16,
    /// The node's own address, the source of the outer packets.
    pub local: IpAddr,
    /// Index of the underlay's link; `None` if the kernel's routes choose it.
    pub underlay: Option<u32>,
}

/// The VXLAN link of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vxlan {
    /// Name.
    pub name: Name,
    /// Settings for the whole life of the link.
    pub settings: Settings,
    /// Hardware address.
    pub mac: Mac,
    /// MTU in bytes.
    pub mtu: u32,
}

/// A link with the name of the VXLAN link, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Index.
    pub index: u32,
    /// Kind, such as `vxlan` or `dummy`; empty for a device.
    pub kind: String,
    /// Settings; `None` for a link of another kind, and for a VXLAN link with options that the
    /// agent does not use: learning, a group, no local address.
    pub settings: Option<Settings>,
    /// Hardware address; `None` if it is not six bytes.
    pub mac: Option<Mac>,
    /// MTU in bytes.
    pub mtu: u32,
    /// True if the administrator's state is up.
    pub is_up: bool,
}

impl Found {
    /// Returns true if the link is another program's: not a VXLAN link.
    pub fn is_foreign(&self) -> bool {
        self.kind != "vxlan"
    }
}

/// Family of the packets that carry VXLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Underlay {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Underlay {
    /// Returns the family of a node's VXLAN link: IPv4 if the node has an IPv4 address. `None` for
    /// a node without an address.
    ///
    /// Each node computes the same family for a given node, so both ends of a pair agree. The
    /// family never depends on third nodes, since a change of the link interrupts traffic.
    pub fn of(addresses: &[IpAddr]) -> Option<Self> {
        if addresses.iter().any(IpAddr::is_ipv4) {
            Some(Self::V4)
        } else {
            (!addresses.is_empty()).then_some(Self::V6)
        }
    }

    /// Returns the bytes that VXLAN adds to a packet: an outer IP header of 20 or 40 bytes, UDP,
    /// VXLAN, and the inner Ethernet header.
    pub fn overhead(self) -> u32 {
        const UDP: u32 = 8;
        const VXLAN: u32 = 8;
        const ETHERNET: u32 = 14;
        let ip = match self {
            Self::V4 => 20,
            Self::V6 => 40,
        };
        ip + UDP + VXLAN + ETHERNET
    }

    /// Returns the first address of the family.
    pub fn first(self, addresses: &[IpAddr]) -> Option<IpAddr> {
        let is_ipv4 = self == Self::V4;
        let mut addresses = addresses.iter();
        addresses
            .find(|address| address.is_ipv4() == is_ipv4)
            .copied()
    }
}

impl Vxlan {
    /// Returns the link of the node `own`. `None` if the node has no address.
    pub fn of(own: &Node, config: config::Vxlan, uplink_mtu: u32) -> Option<Self> {
        let underlay = Underlay::of(&own.addresses)?;
        Some(Self {
            name: Name::Braid,
            settings: Settings {
                id: config.id,
                port: config.port,
                local: underlay.first(&own.addresses)?,
                underlay: None,
            },
            mac: mac(&own.name),
            mtu: uplink_mtu.saturating_sub(underlay.overhead()),
        })
    }
}

/// Returns the MAC of a node's VXLAN link: the first six bytes of the SHA-256 of the node's name,
/// locally administered and unicast. Other nodes compute it too, so it never changes.
pub fn mac(node: &str) -> Mac {
    const LOCAL: u8 = 0b10;
    const GROUP: u8 = 0b01;
    let digest = Sha256::digest(node);
    let mut bytes = [0; 6];
    bytes.copy_from_slice(&digest[..6]);
    bytes[0] = (bytes[0] | LOCAL) & !GROUP;
    Mac(bytes)
}

impl Display for Vxlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Settings {
            id,
            port,
            local,
            underlay,
        } = self.settings;
        let (name, mac, mtu) = (self.name, self.mac, self.mtu);
        write!(f, "{name} address {mac} mtu {mtu}")?;
        if !name.is_flannels() {
            f.write_str(" addrgenmode none")?;
        }
        write!(f, " up type vxlan id {id} local {local}")?;
        if let Some(underlay) = underlay {
            write!(f, " dev if{underlay}")?;
        }
        write!(f, " dstport {port} nolearning")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        let parsed = texts.iter().map(|text| text.parse().expect("an address"));
        parsed.collect()
    }

    #[test]
    fn the_mac_of_a_node_is_a_fixed_function_of_its_name() {
        // The digests of sha256sum(1) begin with 35971be6e9bb and ca978112ca1b.
        assert_eq!(mac("node-1").to_string(), "36:97:1b:e6:e9:bb");
        assert_eq!(mac("a").to_string(), "ca:97:81:12:ca:1b");
        for number in 0..200 {
            let first = mac(&format!("n{number}")).0[0];
            assert_eq!(first & 0b11, 0b10, "locally administered, not a group");
        }
    }

    #[test]
    fn a_node_with_an_ipv4_address_carries_vxlan_over_it_whatever_the_order() {
        for (texts, expected) in [
            (&["fd99::1", "192.0.2.1", "192.0.2.9"][..], "192.0.2.1"),
            (&["192.0.2.1", "fd99::1"], "192.0.2.1"),
            (&["fd99::1", "fd99::2"], "fd99::1"),
        ] {
            let addresses = addresses(texts);
            let underlay = Underlay::of(&addresses).expect("a family");
            let first = underlay.first(&addresses).expect("an address");
            assert_eq!(first.to_string(), expected);
        }
        assert_eq!(Underlay::of(&[]), None);
        assert_eq!((Underlay::V4.overhead(), Underlay::V6.overhead()), (50, 70));
    }
}
