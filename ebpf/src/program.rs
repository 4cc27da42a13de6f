//! The program `shape`. It is loaded once for several attachments, and attached in up to three
//! places of each attachment. The filter's class id, which the kernel writes into each packet first
//! (net/sched/cls_bpf.c), identifies the attachment and the place.

use crate::{shape, subnets};
use aya_ebpf::{
    bindings::{__sk_buff, TC_ACT_UNSPEC},
    btf_maps::Array,
    macros::{btf_map, classifier},
    programs::TcContext,
};
use braid_ebpf_types::shape::{PLACE_BITS, PLACES, SLOTS, Shape, index};

#[btf_map]
static SHAPES: Array<[Shape; PLACES], { SLOTS as usize }> = Array::new();

/// Shapes the packets that leave the device.
#[classifier]
pub fn shape(ctx: TcContext) -> i32 {
    verdict(ctx.skb.skb, |_, _, _| false)
}

/// Shapes only the packets selected by subnet.
#[classifier]
pub fn shape_subnets(ctx: TcContext) -> i32 {
    verdict(ctx.skb.skb, subnets::is_free)
}

#[inline(always)]
fn verdict(skb: *mut __sk_buff, is_free: impl Fn(*mut __sk_buff, u32, u64) -> bool) -> i32 {
    // SAFETY: the context is valid for the run, and the verifier lets a classifier read the field.
    let class = unsafe { (*skb).tc_classid };
    let place = class & ((1 << PLACE_BITS) - 1);
    let Some(places) = SHAPES.get_ptr_mut(class >> PLACE_BITS) else {
        return TC_ACT_UNSPEC;
    };
    // SAFETY: the place lies within the map's value, which outlives the run.
    let shape = unsafe { places.cast::<Shape>().add(index(place)) };
    // SAFETY: this part of the value is constant after the program is attached.
    if is_free(skb, place, unsafe { (*shape).conf.subnets }) {
        shape::let_pass(skb, shape)
    } else {
        shape::verdict(skb, shape)
    }
}
