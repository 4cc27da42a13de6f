//! Shaping: when each packet of one direction may leave, and whether it may.
//!
//! A virtual clock without locks: each packet moves the clock on by the time that it takes at the
//! rate, and leaves when it is as late as that. A small packet of a flow that has nothing waiting
//! leaves at once, charged all the same: it is an answer, a handshake or a heartbeat beside
//! somebody's bulk. `fq` waits for the departure time; without `fq`, `tbf` or `htb` holds the rate,
//! and the program picks the band or class.

use crate::{
    number::Number,
    time::{Order, pick},
};
use aya_ebpf::{
    bindings::{__sk_buff, TC_ACT_SHOT, TC_ACT_UNSPEC},
    helpers::{
        bpf_ktime_get_ns,
        generated::{
            bpf_get_hash_recalc, bpf_get_socket_cookie, bpf_sk_fullsock, bpf_skb_ecn_set_ce,
        },
    },
};
use braid_ebpf_types::shape::{
    BYTE_TIME_SHIFT, CLASS_BULK, CLASS_FREE, CLASS_SPARSE, CLOCK_BASE_NS, Conf, FLOWS, Shape,
};
use core::ptr::{addr_of, addr_of_mut};

/// A stamp further ahead is none of this clock: a device noted there when the packet came in, by
/// the clock of the day.
const STAMP_AHEAD_NS: u64 = 10_000_000_000;
/// A sender may ask that a packet leaves so much later, and no more: it would gather what the rate
/// gives all the time (`SO_TXTIME`), to send it at once.
const WANTED_AHEAD_NS: u64 = 100_000_000;
/// How much time's worth of bypassing packets may come at once, at their share of the rate.
const BYPASS_DEPTH_NS: u64 = 20_000_000;
/// Bypassing packets may take one part in so many of the rate: with a quarter, at 1 Mbit/s one
/// request and answer every 5 ms were too many.
const BYPASS_SHARE: u64 = 2;
/// `IPPROTO_TCP`.
const TCP: u32 = 6;
/// Two to the power of 64 over the golden ratio: numbers that follow each other are far apart when
/// multiplied by it.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Whether and when the packet may go.
#[inline(always)]
pub fn verdict(skb: *mut __sk_buff, shape: *mut Shape) -> i32 {
    Packet::of(skb, shape).verdict()
}

/// Lets a packet pass beside the shaped ones.
#[inline(always)]
pub fn let_pass(skb: *mut __sk_buff, shape: *mut Shape) -> i32 {
    // SAFETY: the map's value outlives the run, and the field is one that the verifier lets a
    // classifier write.
    unsafe {
        (*skb).priority = pick(
            (*shape).conf.keeps_priority,
            u64::from((*skb).priority),
            u64::from(CLASS_FREE),
        ) as u32;
    }
    TC_ACT_UNSPEC
}

/// One packet and the state of its direction.
struct Packet {
    skb: *mut __sk_buff,
    conf: *const Conf,
    order: Order,
    clock: &'static Number,
    bypass_clock: &'static Number,
    passed: &'static Number,
    flow: Flow,
    count: Counters,
    now: u64,
    /// What its sender wrote on it.
    stamp: u64,
    /// The earliest that its sender wants it to leave.
    wanted: u64,
    /// How long it takes at the rate.
    took: u64,
    /// Its length with the headers of all its segments.
    bytes: u64,
    /// How many those are; 0 and 1 are the same.
    segments: u64,
    /// How long it may wait behind its flow's.
    horizon_ns: u64,
}

/// Where a packet comes from.
struct Origin {
    /// A number for its flow.
    flow: u32,
    /// How long it may wait behind its flow's.
    horizon_ns: u64,
}

impl Origin {
    /// The kernel gives a connection another hash, and another label of IPv6, when an answer is
    /// late. By that hash what it sends again would pass the packets that it sent first, and
    /// the receiver takes no older packet after a newer one (RFC 7323, section 5). So a
    /// connection of this node is known by its socket.
    #[inline(always)]
    fn of(skb: *mut __sk_buff, conf: &Conf) -> Self {
        // SAFETY: the context is valid for the run, and each pointer is compared with null before
        // it is followed.
        unsafe {
            let by_hash = bpf_get_hash_recalc(skb);
            let socket = (*skb).__bindgen_anon_2.sk;
            if socket.is_null() {
                return Self {
                    flow: by_hash,
                    horizon_ns: conf.horizon_ns,
                };
            }
            let horizon_ns = conf.socket_horizon_ns;
            let socket = bpf_sk_fullsock(socket);
            if socket.is_null() || (*socket).protocol != TCP {
                return Self {
                    flow: by_hash,
                    horizon_ns,
                };
            }
            let number = bpf_get_socket_cookie(skb.cast());
            Self {
                flow: (number.wrapping_mul(SPREAD) >> u32::BITS) as u32,
                horizon_ns,
            }
        }
    }
}

/// When the last packet of a flow leaves, as far as it did not bypass: the earlier of two numbers,
/// so that it takes two other flows, or one by a rare chance, to make it seem later.
struct Flow {
    places: [&'static Number; 2],
    /// How long packets have taken so far that passed others, unless these leave by the clock all
    /// the same (`fq`). The numbers are less by it than the times: what passes a waiting
    /// packet has it leave later.
    passed: u64,
}

impl Flow {
    #[inline(always)]
    fn leaves(&self, order: Order) -> u64 {
        order.lesser(self.places[0].get(), self.places[1].get()) + self.passed
    }

    /// It leaves no earlier than that.
    #[inline(always)]
    fn set(&self, order: Order, time: u64) {
        for number in self.places {
            number.set(order.later(number.get(), time - self.passed));
        }
    }
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
    fn of(skb: *mut __sk_buff, shape: *mut Shape) -> Self {
        let order = Order::new();
        // SAFETY: the context is valid for the run, and these are fields that the verifier lets a
        // classifier read.
        let (bytes, stamp) = unsafe { (u64::from((*skb).wire_len), (*skb).tstamp) };
        // SAFETY: as above.
        let segments = u64::from(unsafe { (*skb).gso_segs });
        // SAFETY: a helper without arguments.
        let clock_ns = unsafe { bpf_ktime_get_ns() };
        let ahead = stamp.wrapping_sub(clock_ns);
        let is_asked = !order.before(ahead, 0) & order.before(ahead, STAMP_AHEAD_NS);
        let now = CLOCK_BASE_NS + clock_ns;
        // SAFETY: the map's value outlives the run.
        let Origin { flow, horizon_ns } = Origin::of(skb, unsafe { &(*shape).conf });
        let places = [
            flow as usize & (FLOWS - 1),
            (flow >> 16) as usize & (FLOWS - 1),
        ];
        // SAFETY: each is a number of the map's value, within it, and changed by `Number` alone.
        unsafe {
            let count = addr_of_mut!((*shape).count);
            let flows = addr_of_mut!((*shape).flows).cast::<u64>();
            let passed = Number::at(addr_of_mut!((*shape).passed));
            Self {
                skb,
                conf: addr_of!((*shape).conf),
                order,
                clock: Number::at(addr_of_mut!((*shape).clock)),
                bypass_clock: Number::at(addr_of_mut!((*shape).bypass_clock)),
                passed,
                flow: Flow {
                    places: places.map(|place| Number::at(flows.add(place))),
                    passed: passed.get() & !(*shape).conf.keeps_priority,
                },
                count: Counters {
                    packets: Number::at(addr_of_mut!((*count).packets)),
                    bytes: Number::at(addr_of_mut!((*count).bytes)),
                    delayed: Number::at(addr_of_mut!((*count).delayed)),
                    dropped: Number::at(addr_of_mut!((*count).dropped)),
                    marked: Number::at(addr_of_mut!((*count).marked)),
                    bypassed: Number::at(addr_of_mut!((*count).bypassed)),
                },
                now,
                stamp,
                wanted: now + (order.lesser(ahead, WANTED_AHEAD_NS) & is_asked),
                took: bytes * (*shape).conf.byte_time >> BYTE_TIME_SHIFT,
                bytes,
                segments,
                horizon_ns,
            }
        }
    }

    /// What is asked for.
    #[inline(always)]
    fn conf(&self) -> &Conf {
        // SAFETY: the map's value outlives the run, and this part of it is written before the
        // program is attached and never again.
        unsafe { &*self.conf }
    }

    #[inline(always)]
    fn verdict(&self) -> i32 {
        let (mut time, mut class) = (self.wanted, CLASS_SPARSE);
        let (flow, share) = (self.flow.leaves(self.order), self.bypass_clock.get());
        if self.bypasses(flow, share) {
            self.clock.add(self.took);
        } else {
            class = CLASS_BULK;
            let base = self.reserve();
            if self.order.before(self.now + self.may_wait(flow), base) != 0 {
                self.clock.add(self.took.wrapping_neg());
                self.count.dropped.add(1);
                return TC_ACT_SHOT;
            }
            // When the rate has made room for all of it. If each left as its time begins, a sender
            // that measures its rate (BBR) would see a long packet come through in the
            // time of the short one before it.
            let leaves = base + self.order.lesser(self.took, self.conf().burst_ns);
            time = self.order.later(self.wanted, leaves);
            let spared = self.spared(flow, share, base);
            self.flow.set(self.order, time - spared);
            self.wait(base, leaves);
        }
        self.count.packets.add(1);
        self.count.bytes.add(self.bytes);
        let Conf {
            keeps_priority,
            keeps_stamp,
            ..
        } = *self.conf();
        // SAFETY: fields that the verifier lets a classifier write.
        unsafe {
            (*self.skb).priority = pick(
                keeps_priority,
                u64::from((*self.skb).priority),
                u64::from(class),
            ) as u32;
            // By its sender's older stamp a packet would overtake those before it.
            (*self.skb).tstamp = pick(keeps_stamp, self.stamp, time - CLOCK_BASE_NS);
        }
        TC_ACT_UNSPEC
    }

    /// How long the packet may wait: less where others of its flow do. If it were the same for all,
    /// whoever fills the queue would leave a flow that has lost a packet no room to send it
    /// again.
    #[inline(always)]
    fn may_wait(&self, flow: u64) -> u64 {
        let its_own_do = self.order.before(self.now, flow);
        self.horizon_ns + (self.conf().first_ns & !its_own_do)
    }

    /// Notes whether the packet waits, and tells its flow if that is long.
    #[inline(always)]
    fn wait(&self, base: u64, leaves: u64) {
        self.count
            .delayed
            .add(self.order.before(self.wanted, leaves) & 1);
        if self.order.before(self.now + self.conf().ecn_ns, base) != 0 {
            // SAFETY: the context is valid for the run, and no pointer into the packet is kept
            // across the helper.
            self.count
                .marked
                .add(unsafe { bpf_skb_ecn_set_ce(self.skb) } as u64);
        }
    }

    /// By how much earlier a flow may pass others again than its packet and the gap after it say:
    /// by the gap. A small packet that waits behind others' alone must not make the next one
    /// wait as well: a client that asks again when it is answered would never be rid of the
    /// gap. Where the share is used up, the others may be its own.
    #[inline(always)]
    fn spared(&self, flow: u64, share: u64, base: u64) -> u64 {
        let Conf {
            gap_ns,
            keeps_priority,
            ..
        } = *self.conf();
        let others_wait = self.order.before(self.now, base);
        let its_own_do = self.order.before(self.now, flow);
        let no_share = self.order.before(self.now, share);
        let is_large = self.order.before(1, self.segments);
        gap_ns & others_wait & !(its_own_do | no_share | is_large | keeps_priority)
    }

    /// Whether the packet need not wait: others do, its flow has nothing waiting, and such packets
    /// have their share left. Others may wait in the queue although the clock does not say so:
    /// whatever it could not send in time, because its timer came late, it does not catch up
    /// with.
    #[inline(always)]
    fn bypasses(&self, flow: u64, share: u64) -> bool {
        let clock = self.clock.get();
        // Each is negative where it does not hold.
        let others_wait = clock
            .wrapping_add(self.conf().lag_ns)
            .wrapping_sub(self.now + 1);
        let its_flow_does_not = self.now.wrapping_sub(flow + self.conf().gap_ns);
        let share_is_left = self.now.wrapping_sub(share);
        let is_small = 1u64.wrapping_sub(self.segments);
        if ((others_wait | its_flow_does_not | share_is_left | is_small) as i64) < 0 {
            return false;
        }
        // Two processors that move it on at once count one packet less of the share; all count for
        // the rate.
        self.bypass_clock
            .set(self.order.later(share, self.now - BYPASS_DEPTH_NS) + self.took * BYPASS_SHARE);
        self.passed.add(self.took);
        self.count
            .bypassed
            .add(self.order.before(self.now, clock) & 1);
        true
    }

    /// Moves the clock on by the packet and returns when it may leave.
    #[inline(always)]
    fn reserve(&self) -> u64 {
        let stood = self.clock.fetch_add(self.took);
        let base = self.order.later(stood, self.now - self.conf().burst_ns);
        // If the clock stood still while nothing was sent. Whoever else moves it on meanwhile has
        // set it as well.
        self.clock.replace(stood + self.took, base + self.took);
        base
    }
}
