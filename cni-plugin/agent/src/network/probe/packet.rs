//! ICMP echo requests of a probe, and their answers.

use std::net::IpAddr;

/// Bytes of a request: an ICMP header, and the values of [`Echo`].
const LEN: usize = HEADER + 16;
const HEADER: usize = 8;
/// Types of requests and answers: RFC 792, RFC 4443.
const V4: (u8, u8) = (8, 0);
const V6: (u8, u8) = (128, 129);

/// Values that an answer repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Echo {
    /// Random number of this agent. Without it, any program could answer.
    pub(super) nonce: u64,
    /// Number of the round.
    pub(super) round: u32,
    /// Number of the target in the round.
    pub(super) index: u32,
}

/// Returns the request to an address.
pub(super) fn request(echo: Echo, to: IpAddr) -> [u8; LEN] {
    let mut packet = [0; LEN];
    packet[0] = if to.is_ipv4() { V4.0 } else { V6.0 };
    packet[4..6].copy_from_slice(&echo.nonce.to_be_bytes()[..2]);
    packet[6..8].copy_from_slice(&echo.index.to_be_bytes()[2..]);
    packet[8..16].copy_from_slice(&echo.nonce.to_be_bytes());
    packet[16..20].copy_from_slice(&echo.round.to_be_bytes());
    packet[20..24].copy_from_slice(&echo.index.to_be_bytes());
    // The kernel computes the checksum of ICMPv6.
    if to.is_ipv4() {
        let checksum = checksum(&packet);
        packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    packet
}

/// Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(packet: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in packet.chunks_exact(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

/// Parses a received packet; `None` if it is not an answer. An IPv4 packet has its IP header.
pub(super) fn answer(packet: &[u8], is_ipv4: bool) -> Option<Echo> {
    let (kind, icmp) = if is_ipv4 {
        let words = usize::from(packet.first()? & 0xf);
        (V4.1, packet.get(words * 4..)?)
    } else {
        (V6.1, packet)
    };
    if *icmp.first()? != kind {
        return None;
    }
    let values = icmp.get(HEADER..LEN)?;
    Some(Echo {
        nonce: u64::from_be_bytes(values[..8].try_into().ok()?),
        round: u32::from_be_bytes(values[8..12].try_into().ok()?),
        index: u32::from_be_bytes(values[12..].try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_repeats_the_values_of_its_request() {
        let echo = Echo {
            nonce: 0x0123_4567_89ab_cdef,
            round: 7,
            index: 0x1_0002,
        };
        let mut v4 = request(echo, "10.0.0.0".parse().expect("an address"));
        assert_eq!(checksum(&v4), 0, "the sum with its checksum");
        v4[0] = V4.1;
        let mut header = vec![0; 20];
        header[0] = 0x45;
        let received = [header, v4.to_vec()].concat();
        assert_eq!(answer(&received, true), Some(echo));
        let mut v6 = request(echo, "fd00::".parse().expect("an address"));
        v6[0] = V6.1;
        assert_eq!(answer(&v6, false), Some(echo));
    }

    #[test]
    fn other_packets_are_not_answers() {
        let echo = Echo {
            nonce: 1,
            round: 1,
            index: 1,
        };
        let request = request(echo, "fd00::".parse().expect("an address"));
        assert_eq!(answer(&request, false), None, "a request");
        for len in 0..LEN {
            let mut short = request[..len].to_vec();
            if let Some(kind) = short.first_mut() {
                *kind = V6.1;
            }
            assert_eq!(answer(&short, false), None, "{len} bytes");
            assert_eq!(answer(&short, true), None, "{len} bytes");
        }
    }
}
