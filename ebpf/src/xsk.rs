//! `AF_XDP` sockets of a limited container. What they send passes the container's link by its queue, and by the hooks of tc
//! and netfilter there (v6.18 `net/xdp/xsk.c`, `xsk_generic_xmit()`). So they are refused when they ask for the link
//! (`xsk_bind`), or, on a kernel that asks no program, what they send is dropped where it leaves the link below (`xsk`). What
//! goes from one child of that link to another does not pass there.

use crate::number::Number;
use aya_ebpf::{
    bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC},
    btf_maps::{Array, HashMap},
    helpers::{bpf_probe_read_kernel, generated::bpf_get_netns_cookie},
    macros::{btf_map, classifier, lsm},
    programs::{LsmContext, TcContext},
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

/// Drops what such a socket of a container that is held sends. A packet bears its socket as far as the link below, and the
/// socket tells its network namespace (Linux 6.13).
#[classifier]
pub fn xsk(ctx: TcContext) -> i32 {
    let skb = ctx.skb.skb;
    // SAFETY: the context is valid for the run, and the socket is compared with null before it is followed.
    let is_of_xdp = unsafe {
        let socket = (*skb).__bindgen_anon_2.sk;
        !socket.is_null() && (*socket).family == AF_XDP.into()
    };
    if !is_of_xdp {
        return TC_ACT_UNSPEC;
    }
    // SAFETY: a helper that reads the context.
    let netns = unsafe { bpf_get_netns_cookie(skb.cast()) };
    if is_held(netns, |_| true) { TC_ACT_SHOT } else { TC_ACT_UNSPEC }
}

/// Refuses to bind such a socket to a link that is held.
#[lsm(hook = "socket_bind")]
pub fn xsk_bind(ctx: LsmContext) -> i32 {
    // SAFETY: the second argument is the address, which the kernel has copied from the caller; the helper checks the place.
    let Ok(address) = (unsafe { bpf_probe_read_kernel(ctx.arg::<*const Address>(1)) }) else { return 0 };
    if address.family != AF_XDP {
        return 0;
    }
    match netns_of(ctx.arg(0)) {
        Some(netns) if is_held(netns, |link| link == 0 || link == address.link) => -EPERM,
        _ => 0,
    }
}

/// The cookie of the network namespace of a `struct socket`.
#[inline(always)]
fn netns_of(socket: *const u8) -> Option<u64> {
    let offsets = OFFSETS.get(0)?;
    let at = |start: *const u8, offset: u32| start.wrapping_add(offset as usize);
    // SAFETY: the helper checks the places; the offsets are this kernel's.
    unsafe {
        let sock = bpf_probe_read_kernel(at(socket, offsets.socket_sk).cast::<*const u8>()).ok()?;
        let net = bpf_probe_read_kernel(at(sock, offsets.sock_net).cast::<*const u8>()).ok()?;
        bpf_probe_read_kernel(at(net, offsets.net_cookie).cast::<u64>()).ok()
    }
}

/// Whether one of the namespace's attachments is held and concerns `link`; counts it.
#[inline(always)]
fn is_held(netns: u64, concerns: impl Fn(u32) -> bool) -> bool {
    for number in 0..NUMBERS {
        let Some(held) = HELD.get_ptr_mut(&Place { netns, number: number.into() }) else { continue };
        // SAFETY: the map's value outlives the run, and programs change nothing of it but the count, here.
        unsafe {
            if concerns(addr_of!((*held).link).read()) {
                Number::at(addr_of_mut!((*held).refused)).add(1);
                return true;
            }
        }
    }
    false
}
