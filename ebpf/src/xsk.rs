//! Refusal of `AF_XDP` sockets in rate-limited containers. Their packets bypass the queue of the
//! container's link, and the tc and netfilter hooks there (v6.18 `net/xdp/xsk.c`,
//! `xsk_generic_xmit()`). So bind() to the link is refused.

use crate::number::Number;
use aya_ebpf::{
    btf_maps::{Array, HashMap},
    helpers::bpf_probe_read_kernel,
    macros::{btf_map, lsm},
    programs::LsmContext,
};
use braid_ebpf_types::xsk::{HELD as MOST, Held, NUMBERS, Offsets, Place};
use core::ptr::{addr_of, addr_of_mut};

const NO_PREALLOC: usize = 1;
const AF_XDP: u16 = 44;
const EPERM: i32 = 1;

#[btf_map]
static HELD: HashMap<Place, Held, MOST, NO_PREALLOC> = HashMap::new();
#[btf_map]
static OFFSETS: Array<Offsets, 1> = Array::new();

/// Start of `struct sockaddr_xdp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Address {
    family: u16,
    flags: u16,
    link: u32,
}

/// Refuses to bind an `AF_XDP` socket to a link in the map.
#[lsm(hook = "socket_bind")]
pub fn xsk_bind(ctx: LsmContext) -> i32 {
    // SAFETY: the second argument is the address, which the kernel has copied from the caller; the
    // helper checks the pointer.
    let Ok(address) = (unsafe { bpf_probe_read_kernel(ctx.arg::<*const Address>(1)) }) else {
        return 0;
    };
    if address.family != AF_XDP {
        return 0;
    }
    match netns_of(ctx.arg(0)) {
        Some(netns) if is_held(netns, address.link) => -EPERM,
        _ => 0,
    }
}

/// Returns the cookie of the network namespace that a `struct socket` belongs to.
#[inline(always)]
fn netns_of(socket: *const u8) -> Option<u64> {
    let offsets = OFFSETS.get(0)?;
    let at = |start: *const u8, offset: u32| start.wrapping_add(offset as usize);
    // SAFETY: the helper checks the pointers; the offsets are the running kernel's.
    unsafe {
        let sock = bpf_probe_read_kernel(at(socket, offsets.socket_sk).cast::<*const u8>()).ok()?;
        let net = bpf_probe_read_kernel(at(sock, offsets.sock_net).cast::<*const u8>()).ok()?;
        bpf_probe_read_kernel(at(net, offsets.net_cookie).cast::<u64>()).ok()
    }
}

/// True if an attachment in the namespace refuses sockets for `link`. Then counts the refusal.
#[inline(always)]
fn is_held(netns: u64, link: u32) -> bool {
    for number in 0..NUMBERS {
        let Some(held) = HELD.get_ptr_mut(&Place {
            netns,
            number: number.into(),
        }) else {
            continue;
        };
        // SAFETY: the map's value outlives the run, and programs change only the count, here.
        unsafe {
            let held_on = addr_of!((*held).link).read();
            if held_on == 0 || held_on == link {
                Number::at(addr_of_mut!((*held).refused)).add(1);
                return true;
            }
        }
    }
    false
}
