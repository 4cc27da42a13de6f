//! Parsing and rewriting of TCP and UDP packets. Only the first fragment of a datagram has ports;
//! they are kept for the other fragments, which mostly arrive later.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR},
    btf_maps::LruHashMap,
    helpers::generated::{
        bpf_csum_update, bpf_l4_csum_replace, bpf_skb_load_bytes, bpf_skb_pull_data,
        bpf_skb_store_bytes,
    },
    macros::btf_map,
};
use braid_ebpf_types::hostport::{Address, Datagram, ETHERNET, FRAGMENTS as MOST, Mac};
use core::{hint::black_box, mem::MaybeUninit};

/// `ETH_P_IP` and `ETH_P_IPV6` in network byte order, as `__sk_buff` holds them.
const IPV4: u32 = 0x0008;
const IPV6: u32 = 0xdd86;
const ETHERNET_LEN: u32 = 14;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
/// Masks of the fragment field of IPv4, in network byte order: the flag "more fragments", and the
/// fragment's offset.
const MORE: u16 = 0x2000_u16.to_be();
const PLACE: u16 = 0x1fff_u16.to_be();
/// Masks of the same parts in the fragment header of IPv6.
const MORE_V6: u16 = 1_u16.to_be();
const PLACE_V6: u16 = 0xfff8_u16.to_be();
/// Protocol number of the IPv6 fragment header.
const FRAGMENT_HEADER: u8 = 44;
/// Third word of an IPv4 address in 128 bits, `::ffff:0:0`.
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

/// End of `struct iphdr`, from the checksum on.
#[repr(C, packed(2))]
struct Ipv4End {
    checksum: u16,
    addrs: [u32; 2],
}

/// Rewritten bytes of a packet without IPv4 options. The ports directly follow the addresses, so
/// one store is enough.
#[repr(C, packed(2))]
struct Ipv4EndAndPorts {
    end: Ipv4End,
    ports: [u16; 2],
}

/// Rewritten bytes of a packet without IPv6 extension headers.
#[repr(C)]
struct Ipv6EndAndPorts {
    addrs: [Address; 2],
    ports: [u16; 2],
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

/// `struct frag_hdr`.
#[repr(C)]
struct Fragment {
    next: u8,
    reserved: u8,
    place: u16,
    id: u32,
}

#[btf_map]
static DATAGRAMS: LruHashMap<Datagram, [u16; 2], MOST> = LruHashMap::new();

/// Addresses and ports of a packet, source first.
#[derive(Clone, Copy)]
pub struct Ends {
    pub addrs: [Address; 2],
    pub ports: [u16; 2],
}

/// A TCP or UDP packet whose headers can be rewritten.
pub struct Packet {
    pub skb: *mut __sk_buff,
    pub ends: Ends,
    pub protocol: u8,
    is_v6: bool,
    /// Checksum of the IPv4 header.
    checksum: u16,
    /// True for a fragment without the transport header, which an earlier fragment has.
    is_later: bool,
    /// Offset of the IP header.
    network: u32,
    /// Offset of the TCP or UDP header.
    transport: u32,
}

/// Fields of an IP header.
pub struct Network {
    pub addrs: [Address; 2],
    pub protocol: u8,
    pub is_v6: bool,
    /// Header checksum; 0 for IPv6.
    pub checksum: u16,
    /// Offset of the IP header. `end` is the offset after it.
    pub start: u32,
    pub end: u32,
    /// Identification of the datagram if the packet is a fragment; `None` if it is whole.
    id: Option<u32>,
    pub is_later: bool,
}

impl Network {
    /// Parses the header at offset `start`.
    #[inline(always)]
    pub fn parse(skb: *mut __sk_buff, start: u32) -> Option<Self> {
        // SAFETY: the context is valid for the run, and the verifier lets a classifier read the
        // field.
        match unsafe { (*skb).protocol } {
            IPV4 => Self::v4(skb, start),
            IPV6 => Self::v6(skb, start),
            _ => None,
        }
    }

    #[inline(always)]
    fn v4(skb: *mut __sk_buff, start: u32) -> Option<Self> {
        let header: Ipv4 = bring(skb, start)?;
        Some(Self {
            addrs: [
                [0, 0, MAPPED, header.addrs[0]],
                [0, 0, MAPPED, header.addrs[1]],
            ],
            protocol: header.protocol,
            is_v6: false,
            checksum: header.checksum,
            start,
            end: start + u32::from(header.version & 0xf) * 4,
            id: (header.fragment & (MORE | PLACE) != 0).then_some(header.id.into()),
            is_later: header.fragment & PLACE != 0,
        })
    }

    #[inline(always)]
    fn v6(skb: *mut __sk_buff, start: u32) -> Option<Self> {
        let header: Ipv6 = bring(skb, start)?;
        let end = start + size_of::<Ipv6>() as u32;
        let mut network = Self {
            addrs: header.addrs,
            protocol: header.next,
            is_v6: true,
            checksum: 0,
            start,
            end,
            id: None,
            is_later: false,
        };
        if header.next == FRAGMENT_HEADER {
            let header: Fragment = load(skb, end)?;
            network.protocol = header.next;
            network.end = end + size_of::<Fragment>() as u32;
            network.id = (header.place & (MORE_V6 | PLACE_V6) != 0).then_some(header.id);
            network.is_later = header.place & PLACE_V6 != 0;
        }
        Some(network)
    }
}

/// Returns the offset of the IP header on a link with the flags `place`.
#[inline(always)]
pub fn start(place: u32) -> u32 {
    if place & ETHERNET == 0 {
        0
    } else {
        ETHERNET_LEN
    }
}

impl Packet {
    /// Parses the packet in `skb`; `None` if it is not TCP or UDP, or its ports are unknown.
    #[inline(always)]
    pub fn parse(skb: *mut __sk_buff, place: u32) -> Option<Self> {
        let Network {
            addrs,
            protocol,
            is_v6,
            checksum,
            start,
            end,
            id,
            is_later,
        } = Network::parse(skb, start(place))?;
        if protocol != TCP && protocol != UDP {
            return None;
        }
        let ports = match id {
            None => see(skb, end).or_else(|| load(skb, end))?,
            Some(id) => {
                let datagram = Datagram {
                    addrs,
                    id,
                    protocol: protocol.into(),
                };
                if is_later {
                    // SAFETY: the value is copied immediately; a concurrent writer reuses the
                    // number of a datagram.
                    *unsafe { DATAGRAMS.get(&datagram) }?
                } else {
                    let ports = load(skb, end)?;
                    DATAGRAMS.insert(&datagram, &ports, 0).ok()?;
                    ports
                }
            }
        };
        let ends = Ends { addrs, ports };
        Some(Self {
            skb,
            ends,
            protocol,
            is_v6,
            checksum,
            is_later,
            network: start,
            transport: end,
        })
    }

    /// Replaces the addresses and ports of the packet; returns false if that fails.
    #[inline(always)]
    pub fn rewrite(&self, to: &Ends) -> bool {
        let from = &self.ends;
        let (checksum, mangled) = if self.protocol == TCP {
            (16, 0)
        } else {
            (6, u64::from(BPF_F_MARK_MANGLED_0))
        };
        let checksum = self.transport + checksum;
        let diff = diff(&from.addrs, &to.addrs);
        let is_first = !self.is_later;
        // SAFETY: the helpers check that the bytes they read and write are within the packet.
        unsafe {
            if is_first {
                let pseudo = mangled | u64::from(BPF_F_PSEUDO_HDR);
                if bpf_l4_csum_replace(self.skb, checksum, 0, diff, pseudo) != 0 {
                    return false;
                }
                if from.ports != to.ports {
                    let both = mangled | size_of::<u32>() as u64;
                    bpf_l4_csum_replace(self.skb, checksum, word(from.ports), word(to.ports), both);
                }
            }
            if self.is_v6 {
                // The new TCP or UDP checksum offsets the new addresses in the sum of the whole
                // packet, but the helper accounts for the checksum alone. In a later fragment the
                // addresses are the only change.
                bpf_csum_update(self.skb, diff as u32);
            }
            self.store_ends(to, diff, is_first);
        }
        true
    }

    /// Writes the new addresses and ports, and the checksum of the IPv4 header.
    #[inline(always)]
    fn store_ends(&self, to: &Ends, diff: u64, has_ports: bool) {
        let Self {
            skb,
            network,
            transport,
            ..
        } = *self;
        let Ends { addrs, ports } = *to;
        // SAFETY: plain numbers without padding.
        unsafe {
            if self.is_v6 {
                if has_ports && transport == network + size_of::<Ipv6>() as u32 {
                    return store(skb, network + 8, &Ipv6EndAndPorts { addrs, ports });
                }
                store(skb, network + 8, &addrs);
            } else {
                let end = Ipv4End {
                    checksum: changed(self.checksum, diff),
                    addrs: [addrs[0][3], addrs[1][3]],
                };
                if has_ports && transport == network + size_of::<Ipv4>() as u32 {
                    return store(skb, network + 10, &Ipv4EndAndPorts { end, ports });
                }
                store(skb, network + 10, &end);
            }
            if has_ports {
                store(skb, transport, &ports);
            }
        }
    }
}

/// Packs both ports into a number for the checksum helper.
fn word([from, to]: [u16; 2]) -> u64 {
    (u32::from(from) | u32::from(to) << 16).into()
}

/// Returns the change of the sum of all addresses, in 32 bits of one's complement (RFC 1624,
/// section 3).
#[inline(always)]
pub fn diff(from: &[Address; 2], to: &[Address; 2]) -> u64 {
    let word = |end: usize, at: usize| u64::from(!from[end][at]) + u64::from(to[end][at]);
    let sum = |end: usize| word(end, 0) + word(end, 1) + word(end, 2) + word(end, 3);
    let carried = |sum: u64| (sum & u64::from(u32::MAX)) + (sum >> u32::BITS);
    carried(carried(sum(0) + sum(1)))
}

/// Updates a checksum after the sum of its data changed by `diff`.
#[inline(always)]
fn changed(checksum: u16, diff: u64) -> u16 {
    let carried = |sum: u64| (sum & u64::from(u16::MAX)) + (sum >> u16::BITS);
    !carried(carried(
        u64::from(!checksum) + (diff & u64::from(u16::MAX)) + (diff >> u16::BITS),
    )) as u16
}

/// Reads both hardware addresses of an Ethernet frame, destination first.
#[inline(always)]
pub fn macs(skb: *mut __sk_buff) -> Option<[[u8; 6]; 2]> {
    load(skb, 0)
}

/// Reads both hardware addresses of an Ethernet frame as words, destination first.
#[inline(always)]
pub fn mac_words(skb: *mut __sk_buff) -> Option<[Mac; 2]> {
    let [first, second, third]: [u32; 3] = see(skb, 0)?;
    Some([
        [first, second & 0xffff],
        [second >> 16 | third << 16, third >> 16],
    ])
}

/// Writes hardware addresses at the start of an Ethernet frame.
#[inline(always)]
pub fn set_macs<const N: usize>(skb: *mut __sk_buff, macs: &[[u8; 6]; N]) {
    // SAFETY: hardware addresses are bytes without padding.
    unsafe { store(skb, 0, macs) };
}

/// Reads a value at an offset of the packet.
#[inline(always)]
pub fn load<T>(skb: *mut __sk_buff, at: u32) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper writes all bytes of the value, which are plain numbers, or fails.
    unsafe {
        let failed = bpf_skb_load_bytes(
            skb.cast(),
            at,
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
        );
        (failed == 0).then(|| value.assume_init())
    }
}

/// Reads a value directly, without a helper, from the part of the packet that the program can
/// access.
#[inline(always)]
fn see<T>(skb: *mut __sk_buff, at: u32) -> Option<T> {
    // SAFETY: the context is valid for the run, and the verifier checks that the value ends before
    // `data_end`. On this target numbers need not be aligned, and all these values are plain
    // numbers.
    unsafe {
        // Without `black_box` the compiler would load only half of each pointer, which the verifier
        // treats as a number.
        let (start, end) = (
            black_box((*skb).data as usize),
            black_box((*skb).data_end as usize),
        );
        let from = start + at as usize;
        (from + size_of::<T>() <= end).then(|| (from as *const T).read())
    }
}

/// Reads a value directly, after pulling the headers into the linear part if a driver left them
/// elsewhere.
#[inline(always)]
fn bring<T>(skb: *mut __sk_buff, at: u32) -> Option<T> {
    // SAFETY: the context is valid for the run, and the verifier lets a classifier read the fields.
    let (start, end) = unsafe { ((*skb).data, (*skb).data_end) };
    let needed = at + size_of::<T>() as u32;
    if end.wrapping_sub(start) < needed {
        // SAFETY: the context is valid for the run, and no pointer into the packet is kept across
        // the helper.
        unsafe { bpf_skb_pull_data(skb, needed) };
    }
    see(skb, at)
}

/// Writes a value at an offset of the packet.
///
/// # Safety
///
/// `T` has no padding.
#[inline(always)]
pub unsafe fn store<T>(skb: *mut __sk_buff, at: u32, value: &T) {
    let value: *const T = value;
    // SAFETY: the helper reads the value and checks that it lies within the packet.
    unsafe { bpf_skb_store_bytes(skb, at, value.cast(), size_of::<T>() as u32, 0) };
}
