//! What `hp_in` finds out about a packet, for the programs that the packet passes next: a word in
//! the packet, and its flow in a place of the processor's own. Mostly it is still the last one
//! there when the next program runs, which then need not look the flow up again.

use aya_ebpf::{bindings::__sk_buff, btf_maps::PerCpuArray, macros::btf_map};
use braid_ebpf_types::hostport::{Answer, Known, Origin};
use core::ptr::{self, addr_of};

/// In `tc_index`: a client's packet, led already, which is nobody's answer.
pub const LED: u32 = 0xb1ad;
/// In `tc_index`: a container's answer to a client beyond the host, which leads nowhere.
pub const ANSWER: u32 = 0xb1ae;
/// Nothing is known.
pub const NOTHING: u32 = 0;
/// No flow has this protocol.
pub const NO_PROTOCOL: u32 = 0;

/// The stack, of 512 bytes, has no room for it.
#[btf_map]
static LAST: PerCpuArray<Known, 1> = PerCpuArray::new();

/// Leaves a word for the programs that the packet passes next.
#[inline(always)]
pub fn note(skb: *mut __sk_buff, word: u32) {
    // SAFETY: the context is valid for the run, and the verifier lets a classifier write the field.
    unsafe { (*skb).tc_index = word };
}

/// This processor's place, where no other run begins before this one ends.
#[inline(always)]
pub fn last() -> Option<&'static mut Known> {
    // SAFETY: the map's value outlives the run, and this run takes it once.
    LAST.get_ptr_mut(0).map(|last| unsafe { &mut *last })
}

/// Writes a flow, or what its client knows, to its place.
#[inline(always)]
pub fn put<T>(value: &T, place: &mut T) {
    type Word = u32;
    let (from, to) = (
        ptr::from_ref(value).cast::<Word>(),
        ptr::from_mut(place).cast::<Word>(),
    );
    for at in 0..size_of::<T>() / size_of::<Word>() {
        // A loop that the compiler does not see through: it would call memmove(), which does not
        // exist here. SAFETY: both are words without gaps.
        unsafe { to.add(at).write_volatile(from.add(at).read()) };
    }
}

/// What the flow's client takes for the source of its answers, if it is the last one there.
#[inline(always)]
pub fn recall(answer: &Answer) -> Option<Origin> {
    type Words = [u32; size_of::<Answer>() / size_of::<u32>()];
    let last = last()?;
    // SAFETY: a key is words without gaps.
    let (last_words, words) = unsafe {
        (
            &*addr_of!(last.answer).cast::<Words>(),
            &*addr_of!(*answer).cast::<Words>(),
        )
    };
    let mut differs = 0;
    for (one, other) in last_words.iter().zip(words) {
        differs |= one ^ other;
    }
    (differs == 0).then_some(last.origin)
}
