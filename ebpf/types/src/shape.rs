//! Map of the program `shape`. It has one value per attachment, with the state of each place in
//! which the program is attached.

/// Number of attachments that share one program and map; a slot is an index into the map.
pub const SLOTS: u32 = 32;

/// Place of the program: egress of the device that leads to the container.
pub const TO_POD: u32 = 0;
/// Place of the program: egress of the container's own device, or of the ifb that gets the packets
/// which come in from it.
pub const FROM_POD: u32 = 1;
/// Place of the program in attachments of earlier versions: ingress of the device towards the
/// container.
pub const GUARD: u32 = 3;
/// Number of places that an attachment may have the program in.
pub const PLACES: usize = 3;
/// Bits of a class id that hold the place; the bits above hold the slot.
pub const PLACE_BITS: u32 = 2;

/// Returns the index of a place in the map's value: the number of its set bits, which is below
/// [`PLACES`] for any input.
#[inline(always)]
pub const fn index(place: u32) -> usize {
    ((place & 1) + (place >> 1 & 1)) as usize
}

/// Number of flow slots, a power of two. Each flow has two slots, so it is mistaken for another
/// only if other flows use both.
pub const FLOWS: usize = 512;
/// `skb->priority` of packets that may bypass others: `TC_PRIO_INTERACTIVE` in the low bits, hence
/// the first band of `pfifo_fast`, and class 1:b1a6 of `htb`. Packets keep it when they leave an
/// ifb, so the class must be one that no other qdisc has.
pub const CLASS_SPARSE: u32 = 0x1_b1a6;
/// `skb->priority` of all other packets, the same as for unclassified packets: the second band, and
/// no class of `htb`.
pub const CLASS_BULK: u32 = 0;
/// Class of `htb` for packets that are not shaped: 1:b1a0.
pub const CLASS_FREE: u32 = 0x1_b1a0;
/// Start of the clocks, in nanoseconds: 146 years. It is so late that a clock minus a burst is
/// never below zero.
pub const CLOCK_BASE_NS: u64 = 1 << 62;
/// Number of fractional bits of [`Conf::byte_time`]. With this number, the time of the largest
/// packet at the lowest rate still fits into 64 bits.
pub const BYTE_TIME_SHIFT: u32 = 14;
/// Maximum number of subnets per attachment.
pub const SUBNETS: usize = 64;
/// Value of [`Conf::subnets`]: only packets of the named subnets are shaped.
pub const ONLY: u64 = 1;
/// Value of [`Conf::subnets`]: packets of the named subnets are not shaped.
pub const EXCEPT: u64 = 2;

/// Configuration of a place. Written before the program is attached, and again when the limit of a
/// running container changes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// Rate in bits per second at layer 2, including the headers of all segments. For display only:
    /// the program uses `byte_time`.
    pub rate_bps: u64,
    /// Time of one byte at the rate, in nanoseconds times two to the power of [`BYTE_TIME_SHIFT`].
    pub byte_time: u64,
    /// Time of the burst at the rate, in nanoseconds; at most [`CLOCK_BASE_NS`].
    pub burst_ns: u64,
    /// Longest wait in nanoseconds if other packets of the flow are waiting; beyond it the packet
    /// is dropped.
    pub horizon_ns: u64,
    /// Longest wait in nanoseconds of a packet from a socket of this node. The more packets of a
    /// socket wait, the less it may send.
    pub socket_horizon_ns: u64,
    /// Extra wait in nanoseconds if no other packet of the flow is waiting.
    pub first_ns: u64,
    /// Wait in nanoseconds beyond which a packet is marked, if its flow supports ECN.
    pub ecn_ns: u64,
    /// All bits set if a packet keeps its priority, 0 if the priority becomes its class.
    pub keeps_priority: u64,
    /// All bits set if a packet keeps its timestamp, 0 if the timestamp becomes its departure time
    /// (`fq`).
    pub keeps_stamp: u64,
    /// Minimum time in nanoseconds between a flow's last departure and a packet of the flow that
    /// bypasses others. A queue that does not sort could otherwise reorder the two packets. The gap
    /// is not required after a small packet that waited only behind other flows.
    pub gap_ns: u64,
    /// Time in nanoseconds by which the queue may lag behind the clock, so packets may wait in the
    /// queue although the clock has passed. A value far below zero disables bypassing.
    pub lag_ns: u64,
    /// Meaning of the subnets in the subnet map, [`ONLY`] or [`EXCEPT`]; 0 if the program has no
    /// such map.
    pub subnets: u64,
}

/// Packet counters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets let through; a packet of several segments counts once.
    pub packets: u64,
    /// Bytes let through, including the headers of all segments.
    pub bytes: u64,
    /// Packets let through that had to wait.
    pub delayed: u64,
    /// Packets dropped because they would have waited too long.
    pub dropped: u64,
    /// Packets let through that were marked with ECN.
    pub marked: u64,
    /// Packets let through that bypassed others.
    pub bypassed: u64,
}

/// State of one place.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Configuration of the place.
    pub conf: Conf,
    /// Packet counters of the place.
    pub count: Count,
    /// Departure time of the next packet, in nanoseconds of `CLOCK_MONOTONIC` plus
    /// [`CLOCK_BASE_NS`].
    pub clock: u64,
    /// Clock of the packets that bypass others, at their share of the rate.
    pub bypass_clock: u64,
    /// Total time of the packets that bypassed others so far, in nanoseconds.
    pub passed: u64,
    /// Departure time of each flow's last packet, less `passed` if the queue is classful; each flow
    /// is stored twice.
    pub flows: [u64; FLOWS],
}

impl Shape {
    /// Returns the state of a place that no packet has passed yet.
    pub fn new(conf: Conf) -> Self {
        Self {
            conf,
            count: Count::default(),
            clock: 0,
            bypass_clock: 0,
            passed: 0,
            flows: [0; FLOWS],
        }
    }
}

const _: () = assert!(size_of::<Shape>() == (12 + 6 + 3 + FLOWS) * 8 && align_of::<Shape>() == 8);
