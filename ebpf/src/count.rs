//! `count`: how many packets and bytes pass its device. It looks and never decides.

use aya_ebpf::{
    bindings::TC_ACT_UNSPEC,
    btf_maps::PerCpuArray,
    macros::{btf_map, classifier},
    programs::TcContext,
};
use braid_ebpf_types::Count;

#[btf_map]
static COUNTS: PerCpuArray<Count, 1> = PerCpuArray::new();

/// Counts the packet and leaves the verdict to the next filter.
#[classifier]
pub fn count(ctx: TcContext) -> i32 {
    if let Some(count) = COUNTS.get_ptr_mut(0) {
        // SAFETY: the slot is this CPU's own, and tc runs its programs with bottom halves off, so no other run of this
        // program can come between the read and the write.
        let count = unsafe { &mut *count };
        count.packets += 1;
        count.bytes += u64::from(ctx.len());
    }
    TC_ACT_UNSPEC
}
