//! A packet of TCP or UDP: its two ends, read and rewritten. Of a datagram in fragments, only the
//! first one has ports; they are kept for the others, which mostly come behind it.

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
/// In the fragment field of IPv4, in network byte order: "more fragments", and the place of this
/// one.
const MORE: u16 = 0x2000_u16.to_be();
const PLACE: u16 = 0x1fff_u16.to_be();
/// The same in the fragment header of IPv6.
const MORE_V6: u16 = 1_u16.to_be();
const PLACE_V6: u16 = 0xfff8_u16.to_be();
/// Number of that header.
const FRAGMENT_HEADER: u8 = 44;
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

/// The end of `struct iphdr`, from the checksum on.
#[repr(C, packed(2))]
struct Ipv4End {
    checksum: u16,
    addrs: [u32; 2],
}

/// What changes of a packet whose ports follow right behind the addresses, as they mostly do: one
/// store instead of two.
#[repr(C, packed(2))]
struct Ipv4EndAndPorts {
    end: Ipv4End,
    ports: [u16; 2],
}

/// The same of IPv6.
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
    /// That of the IPv4 header.
    checksum: u16,
    /// It has no header of UDP: another fragment has it.
    is_later: bool,
    /// Where the IP header starts.
    network: u32,
    /// Where that of TCP or UDP starts.
    transport: u32,
}

/// What the IP header says.
pub struct Network {
    pub addrs: [Address; 2],
    pub protocol: u8,
    pub is_v6: bool,
    /// IPv4 has one.
    pub checksum: u16,
    /// Where the header starts, and what is behind it.
    pub start: u32,
    pub end: u32,
    /// The fragment's datagram, and whether this is its first one; no number where the packet is
    /// whole.
    id: Option<u32>,
    pub is_later: bool,
}

impl Network {
    /// The header at `start`.
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

/// Where the IP header starts.
#[inline(always)]
pub fn start(place: u32) -> u32 {
    if place & ETHERNET == 0 {
        0
    } else {
        ETHERNET_LEN
    }
}

impl Packet {
    /// The packet in `skb`; none where it is not of TCP or UDP, or nobody knows its ports.
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
                    // SAFETY: the value is copied at once; who changes it reuses the number of a
                    // datagram.
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

    /// Gives the packet other ends; whether it could.
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
        // SAFETY: the helpers check that what they read and write is within the packet.
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
                // With the checksum of TCP or UDP the sum of the whole packet stays as it was, but
                // the helper takes the former for the only change. In a later
                // fragment the addresses are.
                bpf_csum_update(self.skb, diff as u32);
            }
            self.store_ends(to, diff, is_first);
        }
        true
    }

    /// Writes them, and the checksum of the IPv4 header.
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

/// Both ports as the checksum takes them, in one.
fn word([from, to]: [u16; 2]) -> u64 {
    (u32::from(from) | u32::from(to) << 16).into()
}

/// By how much the sum of all addresses changes, in 32 bits of one's complement (RFC 1624, section
/// 3).
#[inline(always)]
pub fn diff(from: &[Address; 2], to: &[Address; 2]) -> u64 {
    let word = |end: usize, at: usize| u64::from(!from[end][at]) + u64::from(to[end][at]);
    let sum = |end: usize| word(end, 0) + word(end, 1) + word(end, 2) + word(end, 3);
    let carried = |sum: u64| (sum & u64::from(u32::MAX)) + (sum >> u32::BITS);
    carried(carried(sum(0) + sum(1)))
}

/// A checksum after its data's sum has changed by `diff`.
#[inline(always)]
fn changed(checksum: u16, diff: u64) -> u16 {
    let carried = |sum: u64| (sum & u64::from(u16::MAX)) + (sum >> u16::BITS);
    !carried(carried(
        u64::from(!checksum) + (diff & u64::from(u16::MAX)) + (diff >> u16::BITS),
    )) as u16
}

/// Both hardware addresses of an Ethernet frame, destination first.
#[inline(always)]
pub fn macs(skb: *mut __sk_buff) -> Option<[[u8; 6]; 2]> {
    load(skb, 0)
}

/// The same as numbers.
#[inline(always)]
pub fn mac_words(skb: *mut __sk_buff) -> Option<[Mac; 2]> {
    let [first, second, third]: [u32; 3] = see(skb, 0)?;
    Some([
        [first, second & 0xffff],
        [second >> 16 | third << 16, third >> 16],
    ])
}

/// Writes hardware addresses from the start of an Ethernet frame on.
#[inline(always)]
pub fn set_macs<const N: usize>(skb: *mut __sk_buff, macs: &[[u8; 6]; N]) {
    // SAFETY: as for any other value.
    unsafe { store(skb, 0, macs) };
}

/// Reads what lies so many bytes behind the start of the packet.
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

/// The same without a helper, of the part of the packet that a program can see.
#[inline(always)]
fn see<T>(skb: *mut __sk_buff, at: u32) -> Option<T> {
    // SAFETY: the context is valid for the run, and the verifier holds what is read to lie before
    // `data_end`. Where the program runs, numbers need not be aligned, and all these are plain
    // numbers.
    unsafe {
        // The compiler would keep the half of each that the field has, which the verifier takes for
        // a number.
        let (start, end) = (
            black_box((*skb).data as usize),
            black_box((*skb).data_end as usize),
        );
        let from = start + at as usize;
        (from + size_of::<T>() <= end).then(|| (from as *const T).read())
    }
}

/// The same of any packet: where a driver left the headers elsewhere, they are brought there.
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

/// Writes there.
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
