//! Results of `hp_in` for the programs that the packet passes next: a word in the packet
//! (`tc_index`), and the packet's flow in a per-CPU map value. The next program usually still finds
//! the flow in this value, which saves a lookup.

use aya_ebpf::{bindings::__sk_buff, btf_maps::PerCpuArray, macros::btf_map};
use braid_ebpf_types::hostport::{Answer, Known, Origin};
use core::ptr::{self, addr_of};

/// Value of `tc_index`: `hp_in` has already forwarded this packet of a client, so it is not a
/// reply.
pub const LED: u32 = 0xb1ad;
/// Value of `tc_index`: the packet is a container's reply to a client outside the host, so it is
/// not for a host port.
pub const ANSWER: u32 = 0xb1ae;
/// Value of `tc_index`: `hp_in` left no result.
pub const NOTHING: u32 = 0;
/// A protocol number that no flow has.
pub const NO_PROTOCOL: u32 = 0;

/// Flow of the last packet on each processor. It is too large for the eBPF stack of 512 bytes.
#[btf_map]
static LAST: PerCpuArray<Known, 1> = PerCpuArray::new();

/// Writes `word` to `tc_index`, for the programs that the packet passes next.
#[inline(always)]
pub fn note(skb: *mut __sk_buff, word: u32) {
    // SAFETY: the context is valid for the run, and the verifier lets a classifier write the field.
    unsafe { (*skb).tc_index = word };
}

/// Returns this processor's value of [`LAST`]. No other program run starts on the processor before
/// this run ends.
#[inline(always)]
pub fn last() -> Option<&'static mut Known> {
    // SAFETY: the map's value outlives the run, and this run takes it once.
    LAST.get_ptr_mut(0).map(|last| unsafe { &mut *last })
}

/// Copies a flow or an origin.
#[inline(always)]
pub fn put<T>(value: &T, place: &mut T) {
    type Word = u32;
    let (from, to) = (
        ptr::from_ref(value).cast::<Word>(),
        ptr::from_mut(place).cast::<Word>(),
    );
    for at in 0..size_of::<T>() / size_of::<Word>() {
        // The volatile writes keep the compiler from calling memmove(), which does not exist here.
        // SAFETY: both values are words without gaps.
        unsafe { to.add(at).write_volatile(from.add(at).read()) };
    }
}

/// Returns the origin of the flow `answer`, if it is the last flow of this processor.
#[inline(always)]
pub fn recall(answer: &Answer) -> Option<Origin> {
    type Words = [u32; size_of::<Answer>() / size_of::<u32>()];
    let last = last()?;
    // SAFETY: a key consists of words without gaps.
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
