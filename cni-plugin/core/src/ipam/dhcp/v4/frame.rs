//! IPv4 and UDP headers of DHCPv4 messages. The kernel can't add these headers for a client without
//! an address.

use super::number::{CLIENT_PORT, SERVER_PORT};
use crate::ipam::checksum::checksum;
use std::net::Ipv4Addr;

const IP_LEN: usize = 20;
const UDP_LEN: usize = 8;
const UDP: u8 = 17;

/// Returns an IPv4 packet with `payload`, from the DHCP client port to the DHCP server port.
pub fn encode(from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let len = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    let mut ip = vec![0x45, 0];
    ip.extend(len(IP_LEN + UDP_LEN + payload.len()));
    // No fragmentation, TTL 64.
    ip.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
    ip.extend(from.octets());
    ip.extend(to.octets());
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum);
    let mut udp = [
        CLIENT_PORT.to_be_bytes(),
        SERVER_PORT.to_be_bytes(),
        len(UDP_LEN + payload.len()),
        [0; 2],
    ]
    .concat();
    let pseudo = [
        &from.octets()[..],
        &to.octets(),
        &[0, UDP],
        &len(UDP_LEN + payload.len()),
    ]
    .concat();
    let sum = checksum(&[&pseudo, &udp, payload]);
    // A checksum of zero would mean that there is none.
    udp[6..8].copy_from_slice(if sum == [0; 2] { &[0xff; 2] } else { &sum });
    [&ip[..], &udp, payload].concat()
}

/// Returns the UDP payload of an IPv4 packet to the DHCP client port; `None` for any other packet.
/// The UDP checksum is not verified, because packets between links on the same machine lack a
/// checksum. The transaction id identifies the answer.
pub fn decode(packet: &[u8]) -> Option<&[u8]> {
    let head_len = usize::from(packet.first()? & 0xf) * 4;
    let (head, rest) = packet.split_at_checked(head_len.max(IP_LEN))?;
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let is_fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0;
    if head[0] >> 4 != 4 || head[9] != UDP || is_fragment {
        return None;
    }
    // Ethernet pads short packets.
    let rest = rest.get(..total.checked_sub(head.len())?)?;
    let (udp, payload) = rest.split_at_checked(UDP_LEN)?;
    let len = usize::from(u16::from_be_bytes([udp[4], udp[5]])).checked_sub(UDP_LEN)?;
    (udp[2..4] == CLIENT_PORT.to_be_bytes()).then_some(payload.get(..len)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_a_packet_add_up_to_zero() {
        let packet = encode(
            Ipv4Addr::new(10, 1, 0, 7),
            Ipv4Addr::new(10, 1, 0, 1),
            b"an odd text",
        );
        assert_eq!(checksum(&[&packet[..IP_LEN]]), [0, 0]);
        let pseudo = [&packet[12..20], &[0, UDP, 0, 19]].concat();
        assert_eq!(checksum(&[&pseudo, &packet[IP_LEN..]]), [0, 0]);
    }

    #[test]
    fn only_a_complete_packet_to_a_client_is_decoded() {
        let mut packet = encode(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, b"text");
        assert_eq!(decode(&packet), None, "it is to a server");
        packet[23] = 68;
        packet.extend([0; 9]);
        assert_eq!(decode(&packet), Some(&b"text"[..]));
        for len in 0..packet.len() - 9 {
            assert_eq!(decode(&packet[..len]), None, "{len} bytes");
        }
        packet[7] = 1;
        assert_eq!(decode(&packet), None, "it is a fragment");
    }
}
