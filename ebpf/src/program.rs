//! The program `shape`: loaded once for an attachment and attached in up to three places. The class id of the filter that
//! runs it, which the kernel writes into each packet before (net/sched/cls_bpf.c), says which place this is.

use crate::{guard, shape, subnets};
use aya_ebpf::{
    bindings::{__sk_buff, TC_ACT_UNSPEC},
    btf_maps::Array,
    macros::{btf_map, classifier},
    programs::TcContext,
};
use braid_ebpf_types::shape::{GUARD, Shape};

/// The bit of a place that is the direction's index.
const DIRECTION: u32 = 1;

/// One direction each.
#[btf_map]
static SHAPES: Array<Shape, 2> = Array::new();

/// Shapes what leaves its device, or guards what comes in from it.
#[classifier]
pub fn shape(ctx: TcContext) -> i32 {
    verdict(ctx.skb.skb, |_, _, _| false)
}

/// The same for a part of the packets, by subnet.
#[classifier]
pub fn shape_subnets(ctx: TcContext) -> i32 {
    verdict(ctx.skb.skb, subnets::is_free)
}

#[inline(always)]
fn verdict(skb: *mut __sk_buff, is_free: impl Fn(*mut __sk_buff, u32, u64) -> bool) -> i32 {
    // SAFETY: the context is valid for the run, and the verifier lets a classifier read the field.
    let place = unsafe { (*skb).tc_classid };
    let Some(shape) = SHAPES.get_ptr_mut(place & DIRECTION) else { return TC_ACT_UNSPEC };
    // SAFETY: the map's value outlives the run; its `conf` is written before the program is attached and never again.
    let is_free = is_free(skb, place, unsafe { (*shape).conf.subnets });
    match (place == GUARD, is_free) {
        (true, true) => TC_ACT_UNSPEC,
        (true, false) => guard::verdict(skb, shape),
        (false, true) => shape::let_pass(skb, shape),
        (false, false) => shape::verdict(skb, shape),
    }
}
