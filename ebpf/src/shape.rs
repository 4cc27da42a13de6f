//! Shaping: departure time and verdict of each packet of one direction.
//!
//! The clock is virtual and lock-free: each packet advances it by its transmission time at the
//! rate, and leaves when real time reaches the clock. A small packet of a flow without waiting
//! packets leaves immediately, but is charged all the same: it is a reply, a handshake or a
//! heartbeat beside a bulk flow. `fq` holds packets until their departure time. Without `fq`, `tbf`
//! or `htb` enforces the rate, and the program selects the band or class.

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

/// Maximum time in nanoseconds by which a packet's timestamp may be in the future. A later
/// timestamp is not from this clock: the device that received the packet wrote it, from the
/// realtime clock.
const STAMP_AHEAD_NS: u64 = 10_000_000_000;
/// Longest delay that a sender may request (`SO_TXTIME`). With more, it could save up its rate over
/// time and send all of it in one burst.
const WANTED_AHEAD_NS: u64 = 100_000_000;
/// Burst of bypassing packets, as time at their share of the rate.
const BYPASS_DEPTH_NS: u64 = 20_000_000;
/// Bypassing packets may use the rate divided by this number. At 1 Mbit/s, a quarter was too little
/// for one request and answer every 5 ms.
const BYPASS_SHARE: u64 = 2;
/// `IPPROTO_TCP`.
const TCP: u32 = 6;
/// Two to the power of 64 over the golden ratio: multiplication by it spreads consecutive numbers
/// far apart.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the verdict for the packet and sets its departure time.
#[inline(always)]
pub fn verdict(skb: *mut __sk_buff, shape: *mut Shape) -> i32 {
    Packet::of(skb, shape).verdict()
}

/// Lets a packet pass unshaped.
#[inline(always)]
pub fn let_pass(skb: *mut __sk_buff, shape: *mut Shape) -> i32 {
    // SAFETY: the map's value outlives the run, and the verifier lets a classifier write the field.
    unsafe {
        (*skb).priority = pick(
            (*shape).conf.keeps_priority,
            u64::from((*skb).priority),
            u64::from(CLASS_FREE),
        ) as u32;
    }
    TC_ACT_UNSPEC
}

/// A packet and the state of its direction.
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
    /// Timestamp that the sender wrote.
    stamp: u64,
    /// Earliest departure time that the sender requests.
    wanted: u64,
    /// Transmission time at the rate, in nanoseconds.
    took: u64,
    /// Length including the headers of all segments.
    bytes: u64,
    /// Number of segments; 0 and 1 mean the same.
    segments: u64,
    /// Longest wait behind other packets of the flow.
    horizon_ns: u64,
}

/// Flow of a packet, and the limit for its kind of sender.
struct Origin {
    /// Hash of the flow.
    flow: u32,
    /// Longest wait behind other packets of the flow.
    horizon_ns: u64,
}

impl Origin {
    /// Identifies a TCP connection of this node by its socket, and any other flow by the packet's
    /// hash. The kernel changes the hash and the IPv6 flow label of a connection when an
    /// acknowledgement is late. If that hash identified the flow, retransmissions would overtake
    /// earlier packets, and the receiver rejects an older packet after a newer one (RFC 7323,
    /// section 5).
    #[inline(always)]
    fn of(skb: *mut __sk_buff, conf: &Conf) -> Self {
        // SAFETY: the context is valid for the run, and each pointer is compared with null before
        // it is dereferenced.
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

/// Departure time of the last packet of a flow that did not bypass others. It is stored in two
/// slots, and the earlier of their times counts. It is too late only if two other flows, or rarely
/// one, use both slots.
struct Flow {
    places: [&'static Number; 2],
    /// Total time of packets that bypassed others; 0 if packets leave by the clock anyway (`fq`).
    /// It is subtracted from the stored times, because each bypassing packet delays the waiting
    /// packets.
    passed: u64,
}

impl Flow {
    #[inline(always)]
    fn leaves(&self, order: Order) -> u64 {
        order.lesser(self.places[0].get(), self.places[1].get()) + self.passed
    }

    /// Sets the departure time, unless a later one is stored.
    #[inline(always)]
    fn set(&self, order: Order, time: u64) {
        for number in self.places {
            number.set(order.later(number.get(), time - self.passed));
        }
    }
}

/// Packet counters of the direction.
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
        // SAFETY: the context is valid for the run, and the verifier lets a classifier read these
        // fields.
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
        // SAFETY: each number lies within the map's value, and only `Number` changes it.
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

    /// Returns the configuration.
    #[inline(always)]
    fn conf(&self) -> &Conf {
        // SAFETY: the map's value outlives the run, and this part of it is constant after the
        // program is attached.
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
            // The packet leaves at the end of its transmission time, when the rate allows all of
            // it. If packets left at the start, a sender that measures its rate (BBR) would see a
            // long packet pass in the time of the short one before it.
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
            // With its sender's older timestamp, the packet would overtake earlier packets.
            (*self.skb).tstamp = pick(keeps_stamp, self.stamp, time - CLOCK_BASE_NS);
        }
        TC_ACT_UNSPEC
    }

    /// Returns the longest wait of the packet, which is shorter if other packets of its flow are
    /// waiting. If the limit were the same for all packets, the flow that fills the queue would
    /// leave no space for a flow that has to retransmit a lost packet.
    #[inline(always)]
    fn may_wait(&self, flow: u64) -> u64 {
        let its_own_do = self.order.before(self.now, flow);
        self.horizon_ns + (self.conf().first_ns & !its_own_do)
    }

    /// Counts the packet if it waits, and marks it with ECN if the wait is long.
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

    /// Returns [`Conf::gap_ns`] if the flow's next packet need not wait for this gap before it may
    /// bypass others, else 0. The gap is spared for a small packet that waits only behind other
    /// flows. Otherwise, a client that sends a request after each reply would always have to wait
    /// for it. It is not spared if the bypass share is used up, because the waiting packets may
    /// then be the flow's own.
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

    /// True if the packet need not wait: packets of other flows are waiting, its own flow has none,
    /// and the bypass share is not used up. Then charges the packet to the share. Packets may wait
    /// in the queue although the clock has passed, because the queue does not make up for time lost
    /// by a late timer.
    #[inline(always)]
    fn bypasses(&self, flow: u64, share: u64) -> bool {
        let clock = self.clock.get();
        // Each number is negative if its condition is false.
        let others_wait = clock
            .wrapping_add(self.conf().lag_ns)
            .wrapping_sub(self.now + 1);
        let its_flow_does_not = self.now.wrapping_sub(flow + self.conf().gap_ns);
        let share_is_left = self.now.wrapping_sub(share);
        let is_small = 1u64.wrapping_sub(self.segments);
        if ((others_wait | its_flow_does_not | share_is_left | is_small) as i64) < 0 {
            return false;
        }
        // Two processors that update it at the same time count one packet too few against the
        // share. Both packets count against the rate.
        self.bypass_clock
            .set(self.order.later(share, self.now - BYPASS_DEPTH_NS) + self.took * BYPASS_SHARE);
        self.passed.add(self.took);
        self.count
            .bypassed
            .add(self.order.before(self.now, clock) & 1);
        true
    }

    /// Advances the clock by the packet and returns the time when its transmission starts.
    #[inline(always)]
    fn reserve(&self) -> u64 {
        let stood = self.clock.fetch_add(self.took);
        let base = self.order.later(stood, self.now - self.conf().burst_ns);
        // Moves the clock forward after an idle time. A concurrent packet that advanced the clock
        // has done so, too.
        self.clock.replace(stood + self.took, base + self.took);
        base
    }
}
