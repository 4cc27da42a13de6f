//! Addresses of the host.
//!
//! braid writes them to a map when it adds a port. The programs also ask the kernel, because an
//! address may have been deleted: for the first packet of a flow, at most fifteen times a second
//! per address. The kernel alone is not enough: `bpf_fib_lookup()` returns the same for an address
//! of the host and for an address without a route.

use super::packet::Packet;
use aya_ebpf::{
    bindings::{__sk_buff, BPF_FIB_LKUP_RET_NOT_FWDED, bpf_fib_lookup as Lookup},
    btf_maps::HashMap,
    helpers::generated::{bpf_fib_lookup, bpf_ktime_get_coarse_ns},
    macros::btf_map,
};
use braid_ebpf_types::hostport::{Address, LOCAL_ADDRS as MOST};
use core::{mem::MaybeUninit, ptr};

const NO_PREALLOC: usize = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// Eight bytes, for volatile stores.
type Eight = [u32; 2];
/// Validity of the kernel's answer: two to this power of nanoseconds, 67 ms.
const HOLDS_SHIFT: u32 = 26;

/// Time when the kernel last confirmed that an address is the host's, in units of 67 ms. When braid
/// adds an address, it writes a time long ago.
#[btf_map]
static LOCAL_ADDRS: HashMap<Address, u32, MOST, NO_PREALLOC> = HashMap::new();

/// An entry of `LOCAL_ADDRS`.
pub struct Noted(*mut u32);

impl Noted {
    /// Returns the entry for an address; `None` if braid did not write one.
    #[inline(always)]
    pub fn find(addr: &Address) -> Option<Self> {
        LOCAL_ADDRS.get_ptr_mut(addr).map(Self)
    }

    /// True if the kernel also considers this address to be the host's. It must be the packet's
    /// destination.
    #[inline(always)]
    pub fn holds(&self, packet: &Packet) -> bool {
        // SAFETY: the map's value outlives the run, and every writer writes a time; the helper has
        // no arguments.
        unsafe {
            let now = (bpf_ktime_get_coarse_ns() >> HOLDS_SHIFT) as u32;
            if self.0.read() != now {
                if !is_local(packet) {
                    return false;
                }
                self.0.write(now);
            }
        }
        true
    }
}

/// Returns the address that stands for all host addresses of the same family as `addr`.
#[inline(always)]
pub fn any_of(addr: &Address) -> Address {
    if is_v4(addr) {
        [0, 0, addr[2], 0]
    } else {
        [0; 4]
    }
}

/// True if the packet's destination is local for the kernel, or has no route.
#[inline(always)]
fn is_local(packet: &Packet) -> bool {
    let [from, to] = &packet.ends.addrs;
    let mut lookup = MaybeUninit::<Lookup>::uninit();
    let place = lookup.as_mut_ptr();
    for at in 0..size_of::<Lookup>() / size_of::<u64>() {
        // The volatile stores keep the compiler from calling memset(), which does not exist here.
        // SAFETY: within the struct, which is aligned to four bytes.
        unsafe { ptr::write_volatile(place.cast::<Eight>().add(at), [0; 2]) };
    }
    let skb: *mut __sk_buff = packet.skb;
    // SAFETY: the context is valid for the run; the struct has the given length, and consists of
    // numbers that are all written now.
    unsafe {
        if is_v4(to) {
            (*place).family = AF_INET;
            (*place).__bindgen_anon_3.ipv4_src = from[3];
            (*place).__bindgen_anon_4.ipv4_dst = to[3];
        } else {
            (*place).family = AF_INET6;
            (*place).__bindgen_anon_3.ipv6_src = *from;
            (*place).__bindgen_anon_4.ipv6_dst = *to;
        }
        (*place).ifindex = (*skb).ifindex;
        bpf_fib_lookup(skb.cast(), place, size_of::<Lookup>() as i32, 0)
            == i64::from(BPF_FIB_LKUP_RET_NOT_FWDED)
    }
}

#[inline(always)]
fn is_v4(addr: &Address) -> bool {
    addr[0] | addr[1] == 0 && addr[2] == 0xffff_u32.to_be()
}
