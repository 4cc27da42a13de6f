//! The guard: drops what a container sends beyond what its shaper would let through, on the host's side, where the
//! container can't take it away.

use crate::{number::Number, time::Order};
use aya_ebpf::{
    bindings::{__sk_buff, TC_ACT_SHOT, TC_ACT_UNSPEC},
    helpers::bpf_ktime_get_ns,
};
use braid_ebpf_types::shape::{BYTE_TIME_SHIFT, CLOCK_BASE_NS, Shape};
use core::ptr::addr_of_mut;

/// Whether the packet may pass.
#[inline(always)]
pub fn verdict(skb: *mut __sk_buff, shape: *mut Shape) -> i32 {
    // SAFETY: each is a number of the map's value; those that change are changed by `Number` alone.
    let (byte_time, depth_ns, clock, dropped) = unsafe {
        (
            (*shape).conf.guard_byte_time,
            (*shape).conf.guard_depth_ns,
            Number::at(addr_of_mut!((*shape).guard_clock)),
            Number::at(addr_of_mut!((*shape).count.guarded)),
        )
    };
    // SAFETY: a helper without arguments, and a field that the verifier lets a classifier read.
    let (now, bytes) = unsafe { (CLOCK_BASE_NS + bpf_ktime_get_ns(), u64::from((*skb).wire_len)) };
    let base = Order::new().later(clock.get(), now - depth_ns);
    if base > now {
        dropped.add(1);
        return TC_ACT_SHOT;
    }
    // Two processors that move it on at once count one packet less; the tenth above the rate covers that.
    clock.set(base + (bytes * byte_time >> BYTE_TIME_SHIFT));
    TC_ACT_UNSPEC
}
