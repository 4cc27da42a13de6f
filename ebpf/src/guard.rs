//! The guard: drops what a container sends beyond what its shaper would let through, on the host's side, where the
//! container can't take it away.

use crate::number::Number;
use aya_ebpf::{
    bindings::{__sk_buff, TC_ACT_SHOT, TC_ACT_UNSPEC},
    helpers::bpf_ktime_get_ns,
};
use braid_ebpf_types::shape::Shape;
use core::cmp::max;
use core::ptr::addr_of_mut;

const BITS_NS: u64 = 8 * 1_000_000_000;

/// Whether the packet may pass.
#[inline(always)]
pub fn verdict(skb: *mut __sk_buff, shape: *mut Shape) -> i32 {
    // SAFETY: each is a number of the map's value; those that change are changed by `Number` alone.
    let (rate_bps, depth_ns, clock, dropped) = unsafe {
        (
            (*shape).conf.guard_bps,
            (*shape).conf.guard_depth_ns,
            Number::at(addr_of_mut!((*shape).guard_clock)),
            Number::at(addr_of_mut!((*shape).count.guarded)),
        )
    };
    if rate_bps == 0 {
        return TC_ACT_UNSPEC;
    }
    // SAFETY: a helper without arguments, and a field that the verifier lets a classifier read.
    let (now, bytes) = unsafe { (bpf_ktime_get_ns(), u64::from((*skb).wire_len)) };
    let base = max(clock.get(), now.saturating_sub(depth_ns));
    if base > now {
        dropped.add(1);
        return TC_ACT_SHOT;
    }
    // Two processors that move it on at once count one packet less; the tenth above the rate covers that.
    clock.set(base + bytes * BITS_NS / rate_bps);
    TC_ACT_UNSPEC
}
