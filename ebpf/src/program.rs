//! The program `shape`: loaded once for an attachment and attached in up to three places. The class id of the filter that
//! runs it, which the kernel writes into each packet before (net/sched/cls_bpf.c), says which place this is.

use crate::{guard, shape};
use aya_ebpf::{
    bindings::TC_ACT_UNSPEC,
    btf_maps::Array,
    macros::{btf_map, classifier},
    programs::TcContext,
};
use braid_ebpf_types::shape::{FROM_POD, GUARD, Shape};

/// One direction each.
#[btf_map]
static SHAPES: Array<Shape, 2> = Array::new();

/// Shapes what leaves its device, or guards what comes in from it.
#[classifier]
pub fn shape(ctx: TcContext) -> i32 {
    let skb = ctx.skb.skb;
    // SAFETY: the context is valid for the run, and the verifier lets a classifier read the field.
    let place = unsafe { (*skb).tc_classid };
    let direction = if place == GUARD { FROM_POD } else { place };
    let Some(shape) = SHAPES.get_ptr_mut(direction) else { return TC_ACT_UNSPEC };
    if place == GUARD { guard::verdict(skb, shape) } else { shape::verdict(skb, shape) }
}
