//! What `AF_XDP` sockets of a limited container send. It passes the container's link by its queue, and by the hooks of tc and
//! netfilter there (v6.18 `net/xdp/xsk.c`, `xsk_generic_xmit()`), so it is held where it leaves the link below. What goes from
//! one child of that link to another does not pass there.
//!
//! A packet bears its socket as far as that, and the socket tells its network namespace (Linux 6.13).

use crate::number::Number;
use aya_ebpf::{
    bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC},
    btf_maps::HashMap,
    helpers::generated::bpf_get_netns_cookie,
    macros::{btf_map, classifier},
    programs::TcContext,
};
use braid_ebpf_types::xsk::{HELD as MOST, Held, NUMBERS, Place};
use core::ptr::addr_of_mut;

const NO_PREALLOC: usize = 1;
const AF_XDP: u32 = 44;

#[btf_map]
static HELD: HashMap<Place, Held, MOST, NO_PREALLOC> = HashMap::new();

/// Drops what such a socket of a container that is held sends.
#[classifier]
pub fn xsk(ctx: TcContext) -> i32 {
    let skb = ctx.skb.skb;
    // SAFETY: the context is valid for the run, and the socket is compared with null before it is followed.
    let is_of_xdp = unsafe {
        let socket = (*skb).__bindgen_anon_2.sk;
        !socket.is_null() && (*socket).family == AF_XDP
    };
    if !is_of_xdp {
        return TC_ACT_UNSPEC;
    }
    // SAFETY: a helper that reads the context.
    let netns = unsafe { bpf_get_netns_cookie(skb.cast()) };
    for number in 0..NUMBERS {
        if let Some(held) = HELD.get_ptr_mut(&Place { netns, number: number.into() }) {
            // SAFETY: the map's value outlives the run, and nobody changes this number of it otherwise.
            unsafe { Number::at(addr_of_mut!((*held).dropped)) }.add(1);
            return TC_ACT_SHOT;
        }
    }
    TC_ACT_UNSPEC
}
