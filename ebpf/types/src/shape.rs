//! The map of the program `shape`: one value with all places of each attachment.

/// How many attachments share a program, and the map: their slots are its indices.
pub const SLOTS: u32 = 32;

/// Place of the program: egress of the device that leads to the container.
pub const TO_POD: u32 = 0;
/// Place of the program: egress of the container's own device, or of the ifb that has what comes in
/// from it.
pub const FROM_POD: u32 = 1;
/// Place of the program in attachments of earlier versions: ingress of the device that leads to the
/// container.
pub const GUARD: u32 = 3;
/// How many places there are.
pub const PLACES: usize = 3;
/// How many bits of a class id are the place; those above are the slot.
pub const PLACE_BITS: u32 = 2;

/// Index of a place in the map's value: how many of its bits are set, which is a place whatever
/// they are.
#[inline(always)]
pub const fn index(place: u32) -> usize {
    ((place & 1) + (place >> 1 & 1)) as usize
}

/// How many places there are for flows, a power of two. Each flow has two of them, and is taken for
/// another only where others hold both.
pub const FLOWS: usize = 512;
/// The `skb->priority` of packets that may pass others: `TC_PRIO_INTERACTIVE` in the low bits, so
/// the first band of `pfifo_fast`, and class 1:b1a6 of `htb`. What an ifb gives back keeps it, so
/// it is a class that nobody else has.
pub const CLASS_SPARSE: u32 = 0x1_b1a6;
/// The `skb->priority` of all others, as of a packet that nobody gave one: the second band, and no
/// class of `htb`.
pub const CLASS_BULK: u32 = 0;
/// The class of `htb` for packets that are not shaped: 1:b1a0.
pub const CLASS_FREE: u32 = 0x1_b1a0;
/// The clocks count from here, so that no burst reaches back beyond zero: 146 years, in
/// nanoseconds.
pub const CLOCK_BASE_NS: u64 = 1 << 62;
/// Fractional bits of [`Conf::byte_time`]: the largest packet at the lowest rate still fits into 64
/// bits.
pub const BYTE_TIME_SHIFT: u32 = 14;
/// Most subnets that one attachment may name.
pub const SUBNETS: usize = 64;
/// [`Conf::subnets`]: only packets of the named subnets are shaped.
pub const ONLY: u64 = 1;
/// [`Conf::subnets`]: packets of the named subnets are not shaped.
pub const EXCEPT: u64 = 2;

/// What is asked for; written before the program is attached and never again.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// Bits per second at layer 2, headers of all segments included; for whoever asks, the program
    /// goes by `byte_time`.
    pub rate_bps: u64,
    /// How long a byte takes at the rate, in nanoseconds times two to the power of
    /// [`BYTE_TIME_SHIFT`].
    pub byte_time: u64,
    /// The time that the burst takes at the rate, in nanoseconds; at most [`CLOCK_BASE_NS`].
    pub burst_ns: u64,
    /// A packet that would wait longer is dropped where others of its flow wait already, in
    /// nanoseconds.
    pub horizon_ns: u64,
    /// The same for a packet of a socket of this node: the more of a socket's packets wait, the
    /// less may it send.
    pub socket_horizon_ns: u64,
    /// How much longer a packet may wait of whose flow no other waits, in nanoseconds.
    pub first_ns: u64,
    /// A packet that waits longer is marked, if its flow knows ECN, in nanoseconds.
    pub ecn_ns: u64,
    /// All bits where a packet keeps the priority it has, none where that becomes its class.
    pub keeps_priority: u64,
    /// All bits where a packet keeps the stamp it has, none where that becomes the time when it
    /// may leave (`fq`).
    pub keeps_stamp: u64,
    /// How long a flow's last packet must have left before another may pass others, in
    /// nanoseconds: a queue that does not sort would turn them round. Not asked after a small
    /// packet that waited behind other flows alone.
    pub gap_ns: u64,
    /// How far the queue may be behind the clock, in nanoseconds: packets may wait there without
    /// its knowledge. Nothing passes others where this is far below zero.
    pub lag_ns: u64,
    /// What the subnets in the map beside mean, [`ONLY`] or [`EXCEPT`]; 0 where the program has no
    /// such map.
    pub subnets: u64,
}

/// What became of the packets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Let through; a packet of several segments counts once.
    pub packets: u64,
    /// Bytes let through, with the headers of all segments.
    pub bytes: u64,
    /// Of the packets, those that had to wait.
    pub delayed: u64,
    /// Not let through: they would have waited too long.
    pub dropped: u64,
    /// Of the packets, those marked with ECN.
    pub marked: u64,
    /// Of the packets, those that passed others.
    pub bypassed: u64,
}

/// One place.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What is asked for.
    pub conf: Conf,
    /// What became of the packets.
    pub count: Count,
    /// When the next packet may leave, in nanoseconds of `CLOCK_MONOTONIC` from [`CLOCK_BASE_NS`]
    /// on.
    pub clock: u64,
    /// The same for packets that pass others, at their share of the rate.
    pub bypass_clock: u64,
    /// How long those have taken so far, in nanoseconds.
    pub passed: u64,
    /// When the last packet of each flow leaves, less `passed` where the queue goes by classes;
    /// twice.
    pub flows: [u64; FLOWS],
}

impl Shape {
    /// Nothing has passed yet.
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
