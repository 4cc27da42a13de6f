//! A packet of TCP or UDP: its two ends, read and rewritten.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR},
    helpers::generated::{
        bpf_csum_diff, bpf_csum_update, bpf_l3_csum_replace, bpf_l4_csum_replace, bpf_skb_load_bytes,
        bpf_skb_store_bytes,
    },
};
use braid_ebpf_types::hostport::{Address, ETHERNET};
use core::mem::MaybeUninit;

/// `ETH_P_IP` and `ETH_P_IPV6` in network byte order, as `__sk_buff` holds them.
const IPV4: u32 = 0x0008;
const IPV6: u32 = 0xdd86;
const ETHERNET_LEN: u32 = 14;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
/// All but "don't fragment" in the fragment field, in network byte order.
const FRAGMENT: u16 = 0x3fff_u16.to_be();
/// Of an IPv4 address as 128 bits: `::ffff:0:0`.
const MAPPED: u32 = 0xffff_u32.to_be();

/// `struct iphdr`.
#[repr(C)]
struct Ipv4 {
    version: u8,
    tos: u8,
    len: u16,
    id: u16,
    fragment: u16,
    ttl: u8,
    protocol: u8,
    checksum: u16,
    addrs: [u32; 2],
}

/// `struct ipv6hdr`.
#[repr(C)]
struct Ipv6 {
    flow: u32,
    len: u16,
    next: u8,
    hops: u8,
    addrs: [Address; 2],
}

/// Both addresses, source first, and both ports.
#[derive(Clone, Copy)]
pub struct Ends {
    pub addrs: [Address; 2],
    pub ports: [u16; 2],
}

/// A packet whose headers can be rewritten.
pub struct Packet {
    pub skb: *mut __sk_buff,
    pub ends: Ends,
    pub protocol: u8,
    is_v6: bool,
    /// Where the IP header starts.
    network: u32,
    /// Where that of TCP or UDP starts.
    transport: u32,
}

impl Packet {
    /// The packet in `skb`; none where it is not of TCP or UDP, or a fragment.
    #[inline(always)]
    pub fn parse(skb: *mut __sk_buff, place: u32) -> Option<Self> {
        let network = if place & ETHERNET == 0 { 0 } else { ETHERNET_LEN };
        // SAFETY: the context is valid for the run, and the verifier lets a classifier read the field.
        let (addrs, protocol, is_v6, transport) = match unsafe { (*skb).protocol } {
            IPV4 => {
                let header: Ipv4 = load(skb, network)?;
                if header.fragment & FRAGMENT != 0 {
                    return None;
                }
                let addrs = [[0, 0, MAPPED, header.addrs[0]], [0, 0, MAPPED, header.addrs[1]]];
                (addrs, header.protocol, false, network + u32::from(header.version & 0xf) * 4)
            }
            IPV6 => {
                let header: Ipv6 = load(skb, network)?;
                (header.addrs, header.next, true, network + size_of::<Ipv6>() as u32)
            }
            _ => return None,
        };
        if protocol != TCP && protocol != UDP {
            return None;
        }
        let ends = Ends { addrs, ports: load(skb, transport)? };
        Some(Self { skb, ends, protocol, is_v6, network, transport })
    }

    /// Gives the packet other ends; whether it could.
    #[inline(always)]
    pub fn rewrite(&self, to: &Ends) -> bool {
        let from = &self.ends;
        let (checksum, mangled) = if self.protocol == TCP { (16, 0) } else { (6, u64::from(BPF_F_MARK_MANGLED_0)) };
        let checksum = self.transport + checksum;
        let len = size_of::<[Address; 2]>() as u32;
        // SAFETY: the helpers check that what they read and write is within the packet; the arrays are as long as said.
        unsafe {
            let diff =
                bpf_csum_diff(from.addrs.as_ptr().cast_mut().cast(), len, to.addrs.as_ptr().cast_mut().cast(), len, 0);
            let pseudo = mangled | u64::from(BPF_F_PSEUDO_HDR);
            if bpf_l4_csum_replace(self.skb, checksum, 0, diff as u64, pseudo) != 0 {
                return false;
            }
            let replace = |from: u16, to: u16| {
                bpf_l4_csum_replace(self.skb, checksum, from.into(), to.into(), mangled | size_of::<u16>() as u64)
            };
            replace(from.ports[0], to.ports[0]);
            replace(from.ports[1], to.ports[1]);
            store(self.skb, self.transport, &to.ports);
            if self.is_v6 {
                // With the checksum of TCP or UDP the sum of the whole packet stays as it was, but the helper takes the
                // former for the only change.
                bpf_csum_update(self.skb, diff as u32);
                store(self.skb, self.network + 8, &to.addrs);
            } else {
                bpf_l3_csum_replace(self.skb, self.network + 10, 0, diff as u64, 0);
                store(self.skb, self.network + 12, &[to.addrs[0][3], to.addrs[1][3]]);
            }
        }
        true
    }
}

/// Both hardware addresses of an Ethernet frame, destination first.
#[inline(always)]
pub fn macs(skb: *mut __sk_buff) -> Option<[[u8; 6]; 2]> {
    load(skb, 0)
}

/// Writes hardware addresses from the start of an Ethernet frame on.
#[inline(always)]
pub fn set_macs<const N: usize>(skb: *mut __sk_buff, macs: &[[u8; 6]; N]) {
    // SAFETY: as for any other value.
    unsafe { store(skb, 0, macs) };
}

#[inline(always)]
fn load<T>(skb: *mut __sk_buff, at: u32) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper writes all bytes of the value, which are plain numbers, or fails.
    unsafe {
        let failed = bpf_skb_load_bytes(skb.cast(), at, value.as_mut_ptr().cast(), size_of::<T>() as u32);
        (failed == 0).then(|| value.assume_init())
    }
}

/// # Safety
///
/// `T` has no padding.
#[inline(always)]
unsafe fn store<T>(skb: *mut __sk_buff, at: u32, value: &T) {
    let value: *const T = value;
    // SAFETY: the helper reads the value and checks that it lies within the packet.
    unsafe { bpf_skb_store_bytes(skb, at, value.cast(), size_of::<T>() as u32, 0) };
}
