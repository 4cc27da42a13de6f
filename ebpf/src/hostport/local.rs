//! Which addresses are the host's.
//!
//! braid notes them when it adds a port. The kernel is asked besides, since an address may have
//! gone: about the first packet of a flow, but fifteen times a second at most for each address. It
//! can't be asked alone: `bpf_fib_lookup()` answers the same for an address of the host and for one
//! to which there is no route.

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
/// Eight bytes of numbers.
type Eight = [u32; 2];
/// The kernel's word holds for two to so many nanoseconds: 67 ms.
const HOLDS_SHIFT: u32 = 26;

/// When the kernel last said that an address is the host's, in units of that time; braid notes a
/// time long ago.
#[btf_map]
static LOCAL_ADDRS: HashMap<Address, u32, MOST, NO_PREALLOC> = HashMap::new();

/// An address that braid noted as the host's.
pub struct Noted(*mut u32);

impl Noted {
    /// None where braid did not note it.
    #[inline(always)]
    pub fn find(addr: &Address) -> Option<Self> {
        LOCAL_ADDRS.get_ptr_mut(addr).map(Self)
    }

    /// Whether the kernel, too, takes this address, which is the packet's destination, for the
    /// host's own.
    #[inline(always)]
    pub fn holds(&self, packet: &Packet) -> bool {
        // SAFETY: the map's value outlives the run, and whoever writes it, writes a time; the
        // helper has no arguments.
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

/// All addresses of the same family.
#[inline(always)]
pub fn any_of(addr: &Address) -> Address {
    if is_v4(addr) {
        [0, 0, addr[2], 0]
    } else {
        [0; 4]
    }
}

/// Whether the kernel takes the packet's destination for the host's own, or knows no way to it.
#[inline(always)]
fn is_local(packet: &Packet) -> bool {
    let [from, to] = &packet.ends.addrs;
    let mut lookup = MaybeUninit::<Lookup>::uninit();
    let place = lookup.as_mut_ptr();
    for at in 0..size_of::<Lookup>() / size_of::<u64>() {
        // A loop of stores that the compiler does not see through: it would call memset(), which
        // does not exist here. SAFETY: within the struct, which is aligned to four bytes.
        unsafe { ptr::write_volatile(place.cast::<Eight>().add(at), [0; 2]) };
    }
    let skb: *mut __sk_buff = packet.skb;
    // SAFETY: the context is valid for the run; the struct is as long as said, and all of it are
    // numbers, now written.
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
