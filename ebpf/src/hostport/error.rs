//! ICMP errors about forwarded TCP and UDP packets. They report the MTU of the path to the
//! container, or tell the client about a closed port. The packet quoted in an error is rewritten
//! like the packet itself, so that its sender recognises it.

use super::packet::{Ends, Network, TCP, UDP, diff, load, start, store};
use aya_ebpf::{
    bindings::__sk_buff,
    helpers::generated::{bpf_l3_csum_replace, bpf_l4_csum_replace},
};
use braid_ebpf_types::hostport::Address;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// ICMP types: destination unreachable, time exceeded, parameter problem.
const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;
/// Highest error type of ICMPv6; errors have the lowest numbers.
const LAST_ERROR: u8 = 4;
/// Length of the ICMP header, in bytes.
const HEADER_LEN: u32 = 8;

/// An ICMP error and the packet that it quotes.
pub struct Quote {
    pub skb: *mut __sk_buff,
    /// Addresses of the error itself, source first.
    pub addrs: [Address; 2],
    /// Addresses and ports of the quoted packet.
    pub ends: Ends,
    /// Protocol of the quoted packet.
    pub protocol: u8,
    is_v6: bool,
    /// Offsets of the IP header, the ICMP header, and the quoted IP and transport headers.
    network: u32,
    icmp: u32,
    quoted: u32,
    transport: u32,
}

impl Quote {
    /// Parses the packet in `skb`; `None` if it is not an ICMP error. `place` has the flags of the
    /// link.
    #[inline(always)]
    pub fn parse(skb: *mut __sk_buff, place: u32) -> Option<Self> {
        let outer = Network::parse(skb, start(place))?;
        if outer.protocol != if outer.is_v6 { ICMPV6 } else { ICMP } || outer.is_later {
            return None;
        }
        let kind: u8 = load(skb, outer.end)?;
        let is_error = match kind {
            kind if outer.is_v6 => kind <= LAST_ERROR,
            UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM => true,
            _ => false,
        };
        if !is_error {
            return None;
        }
        let quoted = Network::parse(skb, outer.end + HEADER_LEN)?;
        if quoted.protocol != TCP && quoted.protocol != UDP || quoted.is_later {
            return None;
        }
        Some(Self {
            skb,
            addrs: outer.addrs,
            ends: Ends {
                addrs: quoted.addrs,
                ports: load(skb, quoted.end)?,
            },
            protocol: quoted.protocol,
            is_v6: outer.is_v6,
            network: outer.start,
            icmp: outer.end,
            quoted: quoted.start,
            transport: quoted.end,
        })
    }

    /// Replaces the addresses of the error, and the addresses and ports of the quoted packet. The
    /// quoted TCP or UDP checksum is kept, because most of the data that it covers is missing.
    #[inline(always)]
    pub fn rewrite(&self, addrs: &[Address; 2], ends: &Ends) {
        let checksum = self.icmp + 2;
        let (outer, inner) = (
            diff(&self.addrs, addrs),
            diff(&self.ends.addrs, &ends.addrs),
        );
        // SAFETY: the helpers check that the bytes they read and write are within the packet; the
        // arrays have the given lengths.
        unsafe {
            let replace = |from: u16, to: u16| {
                bpf_l4_csum_replace(
                    self.skb,
                    checksum,
                    from.into(),
                    to.into(),
                    size_of::<u16>() as u64,
                )
            };
            replace(self.ends.ports[0], ends.ports[0]);
            replace(self.ends.ports[1], ends.ports[1]);
            if self.is_v6 {
                // The checksum of ICMPv6 covers the quoted packet and the error's own addresses.
                bpf_l4_csum_replace(self.skb, checksum, 0, inner, 0);
                bpf_l4_csum_replace(self.skb, checksum, 0, outer, 0);
                store(self.skb, self.network + 8, addrs);
                store(self.skb, self.quoted + 8, &ends.addrs);
            } else {
                // The quoted IP checksum offsets the quoted addresses, so the ICMP checksum is
                // unchanged.
                bpf_l3_csum_replace(self.skb, self.network + 10, 0, outer, 0);
                bpf_l3_csum_replace(self.skb, self.quoted + 10, 0, inner, 0);
                store(self.skb, self.network + 12, &[addrs[0][3], addrs[1][3]]);
                store(
                    self.skb,
                    self.quoted + 12,
                    &[ends.addrs[0][3], ends.addrs[1][3]],
                );
            }
            store(self.skb, self.transport, &ends.ports);
        }
    }
}
