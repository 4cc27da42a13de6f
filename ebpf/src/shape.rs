//! Shaping: when each packet of one direction may leave, and whether it may.
//!
//! A virtual clock without locks: each packet moves the clock on by the time that it takes at the rate, and leaves when
//! the clock said so before. A small packet of a flow that has nothing waiting leaves at once, charged all the same: it
//! is an answer, a handshake or a heartbeat beside somebody's bulk. `fq` waits for the departure time; without `fq`, two
//! classes of `htb` hold the rate, and the program picks the class.

use crate::number::Number;
use aya_ebpf::{
    bindings::{__sk_buff, TC_ACT_SHOT, TC_ACT_UNSPEC},
    helpers::{
        bpf_ktime_get_ns,
        generated::{bpf_get_hash_recalc, bpf_skb_ecn_set_ce},
    },
};
use braid_ebpf_types::shape::{CLASS_BULK, CLASS_FREE, CLASS_SPARSE, Conf, FLOWS, Shape};
use core::cmp::max;
use core::ptr::addr_of_mut;

const BITS_NS: u64 = 8 * 1_000_000_000;
/// A stamp further ahead is none of this clock: a device noted there when the packet came in, by the clock of the day.
const STAMP_AHEAD_NS: u64 = 10_000_000_000;
/// How much time's worth of bypassing packets may come at once, at their share of the rate.
const BYPASS_DEPTH_NS: u64 = 20_000_000;
/// Bypassing packets may take one part in so many of the rate.
const BYPASS_SHARE: u64 = 4;

/// Whether and when the packet may go.
#[inline(always)]
pub fn verdict(skb: *mut __sk_buff, shape: *mut Shape) -> i32 {
    match Packet::of(skb, shape) {
        Some(packet) => packet.verdict(),
        None => TC_ACT_UNSPEC,
    }
}

/// Lets a packet pass beside the shaped ones.
#[inline(always)]
pub fn let_pass(skb: *mut __sk_buff, shape: *mut Shape) -> i32 {
    // SAFETY: the map's value outlives the run, and the field is one that the verifier lets a classifier write.
    unsafe {
        if (*shape).conf.sorts == 0 {
            (*skb).priority = CLASS_FREE;
        }
    }
    TC_ACT_UNSPEC
}

/// One packet and the state of its direction.
struct Packet {
    skb: *mut __sk_buff,
    conf: Conf,
    clock: &'static Number,
    bypass_clock: &'static Number,
    /// When the last packet of its flow leaves, as far as it did not bypass.
    flow: &'static Number,
    count: Counters,
    now: u64,
    /// The earliest that its sender wants it to leave.
    wanted: u64,
    /// How long it takes at the rate.
    took: u64,
    /// Its length with the headers of all its segments.
    bytes: u64,
}

/// The direction's counters.
struct Counters {
    packets: &'static Number,
    bytes: &'static Number,
    delayed: &'static Number,
    dropped: &'static Number,
    marked: &'static Number,
    bypassed: &'static Number,
}

impl Packet {
    #[inline(always)]
    fn of(skb: *mut __sk_buff, shape: *mut Shape) -> Option<Self> {
        // SAFETY: the map's value outlives the run; its `conf` is written before the program is attached and never again.
        let conf = unsafe { (*shape).conf };
        if conf.rate_bps == 0 {
            return None;
        }
        // SAFETY: the context is valid for the run, and these are fields that the verifier lets a classifier read.
        let (bytes, stamp, hash) = unsafe { (u64::from((*skb).wire_len), (*skb).tstamp, bpf_get_hash_recalc(skb)) };
        // SAFETY: a helper without arguments.
        let now = unsafe { bpf_ktime_get_ns() };
        let slot = hash as usize & (FLOWS - 1);
        // SAFETY: each is a number of the map's value, within it, and changed by `Number` alone.
        unsafe {
            let count = addr_of_mut!((*shape).count);
            Some(Self {
                skb,
                conf,
                clock: Number::at(addr_of_mut!((*shape).clock)),
                bypass_clock: Number::at(addr_of_mut!((*shape).bypass_clock)),
                flow: Number::at(addr_of_mut!((*shape).flows).cast::<u64>().add(slot)),
                count: Counters {
                    packets: Number::at(addr_of_mut!((*count).packets)),
                    bytes: Number::at(addr_of_mut!((*count).bytes)),
                    delayed: Number::at(addr_of_mut!((*count).delayed)),
                    dropped: Number::at(addr_of_mut!((*count).dropped)),
                    marked: Number::at(addr_of_mut!((*count).marked)),
                    bypassed: Number::at(addr_of_mut!((*count).bypassed)),
                },
                now,
                wanted: if stamp.wrapping_sub(now) < STAMP_AHEAD_NS { stamp } else { now },
                took: bytes * BITS_NS / conf.rate_bps,
                bytes,
            })
        }
    }

    #[inline(always)]
    fn verdict(&self) -> i32 {
        let (mut time, mut class) = (self.wanted, CLASS_SPARSE);
        if self.bypasses() {
            self.clock.add(self.took);
            self.count.bypassed.add(1);
        } else {
            class = CLASS_BULK;
            let base = self.reserve();
            if base > self.now + self.conf.horizon_ns {
                self.clock.add(self.took.wrapping_neg());
                self.count.dropped.add(1);
                return TC_ACT_SHOT;
            }
            self.flow.set(max(base, self.now));
            if base > self.wanted {
                time = base;
                self.wait(base);
            }
        }
        self.count.packets.add(1);
        self.count.bytes.add(self.bytes);
        // SAFETY: fields that the verifier lets a classifier write.
        unsafe {
            if self.conf.sorts == 0 {
                (*self.skb).priority = class;
            } else {
                // Always written: by its sender's older stamp a packet would overtake those before it.
                (*self.skb).tstamp = time;
            }
        }
        TC_ACT_UNSPEC
    }

    /// Notes that the packet waits until `time`, and tells its flow if that is long.
    #[inline(always)]
    fn wait(&self, time: u64) {
        self.count.delayed.add(1);
        // SAFETY: the context is valid for the run, and no pointer into the packet is kept across the helper.
        if time - self.now > self.conf.ecn_ns && unsafe { bpf_skb_ecn_set_ce(self.skb) } == 1 {
            self.count.marked.add(1);
        }
    }

    /// Whether the packet need not wait: others do, its flow has nothing waiting, and such packets have their share left.
    /// Others may wait in `htb` although the clock does not say so: whatever it could not send in time, because its timer
    /// came late, it does not catch up with.
    #[inline(always)]
    fn bypasses(&self) -> bool {
        // SAFETY: the context is valid for the run.
        let segments = unsafe { (*self.skb).gso_segs };
        let nobody_waits = self.conf.sorts != 0 && self.clock.get() <= self.now;
        if nobody_waits || segments > 1 || self.flow.get() + self.conf.gap_ns > self.now {
            return false;
        }
        let old = self.bypass_clock.get();
        let base = max(old, self.now.saturating_sub(BYPASS_DEPTH_NS));
        base <= self.now && self.bypass_clock.replace(old, base + self.took * BYPASS_SHARE)
    }

    /// Moves the clock on by the packet and returns when it may leave.
    #[inline(always)]
    fn reserve(&self) -> u64 {
        let stood = self.clock.fetch_add(self.took);
        // A burst may be longer than the time since the kernel started.
        let earliest = self.now.saturating_sub(self.conf.burst_ns);
        if stood >= earliest {
            return stood;
        }
        // The clock stood still while nothing was sent. Whoever else moves it on meanwhile has set it as well.
        self.clock.replace(stood + self.took, earliest + self.took);
        earliest
    }
}
