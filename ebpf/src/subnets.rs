//! Selection of shaped packets by subnet: each packet's remote address is looked up in a map.

use aya_ebpf::{
    bindings::__sk_buff,
    btf_maps::{LpmTrie, lpm_trie::Key},
    helpers::generated::bpf_skb_load_bytes_relative,
    macros::btf_map,
};
use braid_ebpf_types::shape::{ONLY, SUBNETS as MOST, TO_POD};
use core::mem::MaybeUninit;

/// 128 bits in network byte order; IPv4 uses the first 32.
type Address = [u32; 4];
/// Family as `__sk_buff` holds it, then the address.
type End = [u32; 5];
const END_BITS: u32 = 5 * u32::BITS;

#[btf_map]
static SUBNETS: LpmTrie<End, u32, MOST> = LpmTrie::new();

/// `ETH_P_IP` and `ETH_P_IPV6` in network byte order, as `__sk_buff` holds them.
const IPV4: u32 = 0x0008;
const IPV6: u32 = 0xdd86;
/// `BPF_HDR_START_NET`: offsets are relative to the network header.
const FROM_NETWORK_HEADER: u32 = 1;

/// True if the packet is not shaped; `subnets` is
/// [`Conf::subnets`](braid_ebpf_types::shape::Conf::subnets).
#[inline(always)]
pub fn is_free(skb: *mut __sk_buff, place: u32, subnets: u64) -> bool {
    let is_listed =
        other_end(skb, place).is_some_and(|end| SUBNETS.get(&Key::new(END_BITS, end)).is_some());
    is_listed != (subnets == ONLY)
}

/// Returns the remote address of a packet: the source if the packet is sent to the container, else
/// the destination.
#[inline(always)]
fn other_end(skb: *mut __sk_buff, place: u32) -> Option<End> {
    let is_source = place == TO_POD;
    // SAFETY: the context is valid for the run, and the verifier lets a classifier read the field.
    match unsafe { (*skb).protocol } {
        IPV4 => load::<u32>(skb, if is_source { 12 } else { 16 }).map(|a| [IPV4, a, 0, 0, 0]),
        IPV6 => load::<Address>(skb, if is_source { 8 } else { 24 })
            .map(|a| [IPV6, a[0], a[1], a[2], a[3]]),
        _ => None,
    }
}

/// Reads a value at an offset from the network header.
#[inline(always)]
fn load<T>(skb: *mut __sk_buff, start: u32) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper writes all bytes of the value, or fails.
    unsafe {
        let (to, len) = (value.as_mut_ptr().cast(), size_of::<T>() as u32);
        let failed = bpf_skb_load_bytes_relative(skb.cast(), start, to, len, FROM_NETWORK_HEADER);
        (failed == 0).then(|| value.assume_init())
    }
}
