//! Probes of addresses that a container is about to get: packets that ask the other hosts on its
//! link, and the packets by which one of them claims an address.
//!
//! IPv4 has ARP probes (RFC 5227 §2.1.1), IPv6 the neighbour solicitations of duplicate address
//! detection (RFC 4862 §5.4).

use super::checksum::checksum;
use crate::name::Mac;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Time in which the other hosts answer, for all addresses together.
pub const WAIT: Duration = Duration::from_millis(100);
/// Number of probes for each address in this time. A bridge may drop the first packets of a new port.
pub const ROUNDS: u32 = 3;
/// Hardware address of all IPv6 hosts (`ff02::1`). The answer to a host without an address goes there.
pub const ALL_NODES: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);

const ARP_LEN: usize = 28;
/// Start of an ARP packet: Ethernet, IPv4, and the lengths of their addresses.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_REQUEST: [u8; 2] = [0, 1];
const ARP_REPLY: [u8; 2] = [0, 2];
const IPV6_LEN: usize = 40;
/// Length of a neighbour solicitation or advertisement without options.
const ND_LEN: usize = 24;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Hop limit that no router passes on (RFC 4861 §7.1).
const ON_LINK: u8 = 255;

/// An address that another host on the link has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// The address.
    pub address: IpAddr,
    /// Hardware address of the host.
    pub mac: Mac,
}

/// Returns an ARP probe for `target`, from a host without an address.
pub fn arp(own: Mac, target: Ipv4Addr) -> [u8; ARP_LEN] {
    let mut packet = [0; ARP_LEN];
    packet[..6].copy_from_slice(&ETHERNET_IPV4);
    packet[6..8].copy_from_slice(&ARP_REQUEST);
    packet[8..14].copy_from_slice(&own.0);
    packet[24..].copy_from_slice(&target.octets());
    packet
}

/// Returns the claim of another host in an ARP packet: the packet is from the address, or is another
/// host's probe for it. `None` for a packet of `own`, or one that is not ARP for IPv4 on Ethernet.
pub fn arp_claim(packet: &[u8], own: Mac) -> Option<Conflict> {
    let packet: &[u8; ARP_LEN] = packet.first_chunk()?;
    let mac = Mac(*packet[8..].first_chunk()?);
    let [sender, target] = [14, 24].map(|at| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|byte| packet[at + byte]);
        Ipv4Addr::new(a, b, c, d)
    });
    let is_request = packet[6..8] == ARP_REQUEST;
    let is_arp = packet[..6] == ETHERNET_IPV4 && (is_request || packet[6..8] == ARP_REPLY);
    if !is_arp || mac == own {
        return None;
    }
    let address = match sender {
        Ipv4Addr::UNSPECIFIED if is_request => target,
        Ipv4Addr::UNSPECIFIED => return None,
        sender => sender,
    };
    let address = address.into();
    Some(Conflict { address, mac })
}

/// Returns the solicited-node multicast address of `target` (RFC 4291 §2.7.1).
fn group(target: Ipv6Addr) -> Ipv6Addr {
    let [.., high, low] = target.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | high & 0xff, low)
}

/// Returns the hardware address of the hosts that may have `target` (RFC 2464 §7).
pub fn group_mac(target: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group(target).octets();
    Mac([0x33, 0x33, a, b, c, d])
}

/// Returns a neighbour solicitation for `target`, from a host without an address. It is an IPv6 packet
/// to the hosts at [`group_mac`].
pub fn solicitation(target: Ipv6Addr) -> [u8; IPV6_LEN + ND_LEN] {
    let group = group(target).octets();
    let mut packet = [0; IPV6_LEN + ND_LEN];
    packet[0] = 6 << 4;
    packet[5] = 24;
    packet[6] = ICMPV6;
    packet[7] = ON_LINK;
    packet[24..IPV6_LEN].copy_from_slice(&group);
    packet[IPV6_LEN] = SOLICITATION;
    packet[IPV6_LEN + 8..].copy_from_slice(&target.octets());
    // The unspecified source adds nothing to the sum.
    let pseudo = [0, 0, 0, packet[5], 0, 0, 0, ICMPV6];
    let sum = checksum(&[&group, &pseudo, &packet[IPV6_LEN..]]);
    packet[IPV6_LEN + 2..IPV6_LEN + 4].copy_from_slice(&sum);
    packet
}

/// Returns the claim of another host in an IPv6 packet from the hardware address `from`: an
/// advertisement of the address, or another host's probe for it. `None` for a packet of `own`, and for
/// all other packets.
pub fn nd_claim(packet: &[u8], from: Mac, own: Mac) -> Option<Conflict> {
    let packet: &[u8; IPV6_LEN + ND_LEN] = packet.first_chunk()?;
    let (head, message) = packet.split_at(IPV6_LEN);
    let is_nd = head[0] >> 4 == 6 && head[6] == ICMPV6 && head[7] == ON_LINK && message[1] == 0;
    let is_probe = message[0] == SOLICITATION && head[8..24] == [0; 16];
    if !is_nd || from == own || !(is_probe || message[0] == ADVERTISEMENT) {
        return None;
    }
    let target: [u8; 16] = *message[8..].first_chunk()?;
    Some(Conflict {
        address: Ipv6Addr::from(target).into(),
        mac: from,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn v4(text: &str) -> Ipv4Addr {
        text.parse().expect("an address")
    }

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    fn of(address: &str) -> Conflict {
        let address = address.parse().expect("an address");
        Conflict {
            address,
            mac: OTHER,
        }
    }

    /// Returns an ARP packet of [`OTHER`].
    fn arp_packet(operation: u8, sender: &str, target: &str) -> Vec<u8> {
        let mut packet = arp(OTHER, v4(target)).to_vec();
        packet[7] = operation;
        packet[14..18].copy_from_slice(&v4(sender).octets());
        packet
    }

    /// Returns a neighbour discovery packet with this source and target.
    fn nd_packet(kind: u8, source: &str, target: &str) -> Vec<u8> {
        let mut packet = solicitation(v6(target)).to_vec();
        packet[8..24].copy_from_slice(&v6(source).octets());
        packet[IPV6_LEN] = kind;
        packet
    }

    #[test]
    fn an_arp_probe_has_no_sender_address() {
        #[rustfmt::skip]
        let expected = [
            0, 1, 8, 0, 6, 4, 0, 1,
            2, 0, 0, 0, 0, 1, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 10, 1, 0, 7,
        ];
        assert_eq!(arp(OWN, v4("10.1.0.7")), expected);
    }

    #[test]
    fn replies_requests_and_probes_of_others_claim_an_ipv4_address() {
        let claim = |packet: &[u8]| arp_claim(packet, OWN);
        let reply = arp_packet(2, "10.1.0.7", "0.0.0.0");
        assert_eq!(claim(&reply), Some(of("10.1.0.7")));
        assert_eq!(
            claim(&arp_packet(1, "10.1.0.7", "10.1.0.9")),
            Some(of("10.1.0.7"))
        );
        assert_eq!(
            claim(&arp_packet(1, "0.0.0.0", "10.1.0.7")),
            Some(of("10.1.0.7"))
        );
        assert_eq!(claim(&arp_packet(2, "0.0.0.0", "10.1.0.7")), None);
        assert_eq!(claim(&arp_packet(3, "10.1.0.7", "0.0.0.0")), None);
        assert_eq!(arp_claim(&reply, OTHER), None, "an own packet");
        // Ethernet pads short packets.
        assert_eq!(
            claim(&[&reply[..], &[0; 18]].concat()),
            Some(of("10.1.0.7"))
        );
        for len in 0..ARP_LEN {
            assert_eq!(claim(&reply[..len]), None, "{len} bytes");
        }
        for byte in 0..6 {
            let mut other = reply.clone();
            other[byte] ^= 1;
            assert_eq!(claim(&other), None, "byte {byte}");
        }
    }

    #[test]
    fn a_solicitation_is_to_the_group_of_its_target() {
        let target = v6("fd41::12:3456");
        let packet = solicitation(target);
        assert_eq!(group(target), v6("ff02::1:ff12:3456"));
        assert_eq!(group_mac(target).to_string(), "33:33:ff:12:34:56");
        #[rustfmt::skip]
        let head = [0x60, 0, 0, 0, 0, 24, 58, 255];
        assert_eq!(packet[..8], head);
        assert_eq!(packet[8..24], [0; 16]);
        assert_eq!(packet[24..40], v6("ff02::1:ff12:3456").octets());
        assert_eq!(packet[40..42], [135, 0]);
        assert_eq!(packet[48..], target.octets());
        let pseudo = [0, 0, 0, 24, 0, 0, 0, 58];
        let whole = checksum(&[&packet[8..40], &pseudo, &packet[40..]]);
        assert_eq!(whole, [0, 0], "the sum with its checksum");
    }

    #[test]
    fn advertisements_and_probes_of_others_claim_an_ipv6_address() {
        let claim = |packet: &[u8]| nd_claim(packet, OTHER, OWN);
        let answer = nd_packet(136, "fe80::2", "fd41::7");
        assert_eq!(claim(&answer), Some(of("fd41::7")));
        assert_eq!(claim(&nd_packet(135, "::", "fd41::7")), Some(of("fd41::7")));
        // It asks for the hardware address of a neighbour.
        assert_eq!(claim(&nd_packet(135, "fe80::2", "fd41::7")), None);
        assert_eq!(claim(&nd_packet(134, "fe80::2", "fd41::7")), None);
        assert_eq!(nd_claim(&answer, OWN, OWN), None, "an own packet");
        let with_option = [&answer[..], &[2, 1, 2, 0, 0, 0, 0, 2]].concat();
        assert_eq!(claim(&with_option), Some(of("fd41::7")));
        for len in 0..answer.len() {
            assert_eq!(claim(&answer[..len]), None, "{len} bytes");
        }
        for (byte, value) in [(0, 0x45), (6, 17), (7, 64), (41, 1)] {
            let mut other = answer.clone();
            other[byte] = value;
            assert_eq!(claim(&other), None, "byte {byte}");
        }
    }
}
