//! Limits of an attachment: what is asked for, and the numbers that follow from it.

mod fact;
mod print;

use crate::name::Hook;
pub use fact::{Limit, ProgramFact, ShapedFact, Traffic};

use super::{LinkRef, State, Verb, lines};
use crate::name::Ns;
use crate::plan::facts::{Facts, Need};
use crate::plan::queue_fallback::Queue;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;

const SECOND_NS: u128 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;
/// Largest packet that the stack hands to a device in one piece, in bytes (`GSO_LEGACY_MAX_SIZE`).
const GSO_MAX: u64 = 64 * 1024;
/// Longest time that the largest packet may take at the rate, in milliseconds. With less than 2 the
/// sender's stack hands over too little at a time to reach the rate.
const GSO_MS: u64 = 5;
/// Longest wait of a packet in the reference plugin's queue, in milliseconds.
const REFERENCE_MS: u64 = 25;
/// A packet that would wait longer is dropped where others of its flow wait already, in
/// nanoseconds.
pub const HORIZON_NS: u64 = 100 * MS_NS;
/// Additional wait of a packet that is the only one of its flow to wait, in nanoseconds.
pub const FIRST_NS: u64 = 200 * MS_NS;
const ETHERNET_HEADER: u64 = 14;
/// By how much a timer is late at most, in milliseconds, but for a machine that is busy all over.
const LATE_MS: u64 = 1;

/// A rate and what may come at once beyond it, both counted at layer 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Bits per second, 8 at least.
    pub bps: u64,
    /// Bits.
    pub burst: u64,
}

impl Rate {
    /// The time that so many bytes take at the rate, in nanoseconds.
    pub fn time_of(self, bytes: u64) -> u64 {
        nanoseconds(u128::from(bytes) * 8, self.bps)
    }

    /// The time that the burst takes at the rate, in nanoseconds.
    pub fn burst_ns(self) -> u64 {
        nanoseconds(u128::from(self.burst), self.bps)
    }

    /// So many milliseconds' worth of it, in bytes.
    pub fn bytes_in(self, ms: u64) -> u64 {
        u64::try_from(u128::from(self.bps) * u128::from(ms) / 8000).unwrap_or(u64::MAX)
    }
}

fn nanoseconds(bits: u128, bps: u64) -> u64 {
    u64::try_from(bits * SECOND_NS / u128::from(bps.max(1))).unwrap_or(u64::MAX)
}

/// The direction of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Toward {
    /// From the network to the container: `ingress` in configurations.
    Pod,
    /// From the container to the network: `egress` in configurations.
    Network,
}

/// Shaping of all that leaves through one link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shaper {
    /// The link.
    pub at: LinkRef,
    /// The direction of its packets.
    pub toward: Toward,
    /// The queue that holds them.
    pub queue: Queue,
    /// The rate and burst that they are held to.
    pub rate: Rate,
    /// The link's MTU in bytes.
    pub mtu: u32,
}

impl Shaper {
    /// [`HORIZON_NS`] for a packet of a socket of this node, container or not: such a socket is
    /// held back, but ten of the largest packets wait by then. At a low rate others would wait
    /// for these for too long.
    pub fn socket_horizon_ns(&self) -> u64 {
        self.rate
            .time_of(10 * GSO_MAX)
            .clamp(HORIZON_NS, 500 * MS_NS)
    }

    /// The longest that any packet waits, in nanoseconds.
    pub fn longest_ns(&self) -> u64 {
        self.socket_horizon_ns() + FIRST_NS
    }

    /// A packet that waits longer is marked, in nanoseconds: two of the largest packets must fit,
    /// or a flow alone would be slowed below the rate; but it is marked well before it would be
    /// dropped.
    pub fn ecn_ns(&self) -> u64 {
        self.rate
            .time_of(2 * GSO_MAX)
            .clamp(5 * MS_NS, HORIZON_NS / 2)
    }

    /// Most packets that may wait in `fq`, at least 20,000. Full packets, each on its own, reach
    /// the horizon before this number.
    pub fn most_packets(&self) -> u32 {
        const LEAST: u32 = 20_000;
        let full = u64::from(self.mtu) + ETHERNET_HEADER;
        let packets = self.rate.bytes_in(2 * self.longest_ns() / MS_NS) / full;
        u32::try_from(packets).unwrap_or(u32::MAX).max(LEAST)
    }

    /// Size of a token bucket in bytes: a packet that does not fit would never pass.
    pub fn bucket(&self) -> u64 {
        (self.rate.burst / 8).max(u64::from(self.mtu) + ETHERNET_HEADER)
    }

    /// Size of a token bucket behind the program, in bytes: the burst, or the largest packet with
    /// what gathers while a timer is late. That packet waits until the bucket holds all of it.
    pub fn bucket_of_large(&self) -> u64 {
        // Of Ethernet, of IP and of TCP with all options, on each segment.
        const HEADERS: u64 = ETHERNET_HEADER + 60 + 60;
        let packet = match self.toward {
            Toward::Pod => GSO_MAX,
            Toward::Network => self.gso_max_size().map_or(GSO_MAX, u64::from),
        };
        let segments = packet.div_ceil(u64::from(self.mtu).saturating_sub(HEADERS).max(HEADERS));
        let late = self.rate.bytes_in(LATE_MS);
        (self.rate.burst / 8).max(late.saturating_add(packet + segments * HEADERS))
    }

    /// Burst that the program's clock lets pass at once, in nanoseconds: as much as the queue that
    /// it speaks for.
    pub fn clock_burst_ns(&self) -> u64 {
        match self.queue {
            Queue::TbfPfifoFast => self.rate.time_of(self.bucket_of_large()),
            Queue::Fq | Queue::Htb | Queue::TbfFqCodel | Queue::Tbf => self.rate.burst_ns(),
        }
    }

    /// Bytes that may wait before a token bucket alone: as much as the reference plugin lets wait.
    pub fn bucket_queue(&self) -> u64 {
        self.rate
            .bytes_in(REFERENCE_MS)
            .saturating_add(self.bucket())
    }

    /// Wait behind a token bucket from which some packets are marked or dropped, in nanoseconds: at
    /// least 5 ms, and two packets fit.
    pub fn codel_target_ns(&self) -> u64 {
        (5 * MS_NS).max(
            self.rate
                .time_of(2 * (u64::from(self.mtu) + ETHERNET_HEADER)),
        )
    }

    /// The largest packet that the container's stack should hand over in one piece, in bytes, so
    /// that one does not hold up all others for long at a low rate; none where the largest
    /// possible does not.
    pub fn gso_max_size(&self) -> Option<u32> {
        let least = 2 * u64::from(self.mtu);
        let size = self
            .rate
            .bytes_in(GSO_MS)
            .clamp(least.min(GSO_MAX), GSO_MAX);
        u32::try_from(size).ok().filter(|_| size < GSO_MAX)
    }

    /// Rate that the guard lets pass, in bits per second: a tenth above the shaper's, so that it
    /// never drops what the shaper let through.
    pub fn guard_bps(&self) -> u64 {
        self.rate.bps.saturating_add(self.rate.bps / 10)
    }

    /// Burst that the guard lets pass at once, as its time at the rate, in nanoseconds.
    pub fn guard_depth_ns(&self) -> u64 {
        self.clock_burst_ns().saturating_add(100 * MS_NS)
    }
}

/// Shaping of one attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shaping {
    /// Network, container id and interface ([`crate::cni::Owner::short`]); empty in records of
    /// earlier versions.
    #[serde(default)]
    pub owner: String,
    /// One for each direction that is shaped.
    pub shapers: Vec<Shaper>,
    /// The host's end of the container's link, where attachments of earlier versions check once
    /// more what the container sends, which they shape in the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<LinkRef>,
    /// The packets that are shaped; none for all.
    pub subnets: Option<Subnets>,
}

/// A part of the packets, by the address of the other end: the source of what the container
/// receives, the destination of what it sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnets {
    /// Only these are shaped; otherwise all but these.
    pub only: bool,
    /// The subnets, 64 at most.
    pub nets: Vec<IpNet>,
}

impl Shaping {
    /// The shaper of one direction.
    pub fn shaper(&self, toward: Toward) -> Option<&Shaper> {
        self.shapers.iter().find(|shaper| shaper.toward == toward)
    }

    /// True if it is all in one namespace: in the container's it lives as long as somebody holds
    /// that.
    pub fn is_all_in(&self, ns: Ns) -> bool {
        self.links().all(|link| link.ns == ns)
    }
}

impl Shaping {
    /// All links that it touches.
    pub fn links(&self) -> impl Iterator<Item = &LinkRef> {
        self.shapers
            .iter()
            .map(|shaper| &shaper.at)
            .chain(&self.guard)
    }
}

impl State for Shaping {
    fn ns(&self) -> Ns {
        self.links().next().map_or(Ns::Host, |at| at.ns)
    }

    /// Writes `tc` of each place; the rate is the program's, whose map no command writes.
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commands = verb.word(print::add as fn(&Self) -> Vec<String>, print::del)(self);
        lines(f, self.links().map(|at| at.ns).zip(commands))
    }

    fn needs(&self) -> Vec<Need> {
        self.links().cloned().map(Need::Shaped).collect()
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let fact = |at| facts.shaped.get(at).cloned().unwrap_or_default();
        for shaper in &self.shapers {
            let (at, shown) = (&shaper.at, fact(&shaper.at));
            let kind = shaper.queue.kind();
            if shown.queue != kind {
                return Err(format!(
                    "link {at} is queued by {:?}, not by {kind}",
                    shown.queue
                ));
            }
            let (bps, burst_ns) = (shaper.rate.bps, shaper.clock_burst_ns());
            if let Some(held) = shown.bps.filter(|held| *held / 8 != bps / 8) {
                return Err(format!(
                    "the queue of link {at} is held to {held} bit/s, not to {bps}"
                ));
            }
            if shaper.queue.has_program() {
                found(&shown, at, Hook::Egress, Limit { bps, burst_ns })?;
            }
        }
        match (&self.guard, self.shaper(Toward::Network)) {
            (Some(at), Some(shaper)) => {
                let (bps, burst_ns) = (shaper.guard_bps(), shaper.guard_depth_ns());
                found(&fact(at), at, Hook::Ingress, Limit { bps, burst_ns })
            }
            _ => Ok(()),
        }
    }

    fn goes_with(&self) -> Vec<&LinkRef> {
        self.links().collect()
    }

    fn predict(&self, facts: &mut Facts) {
        for at in self.shapers.iter().map(|shaper| &shaper.at) {
            let fact = facts.shaped.entry(at.clone()).or_default();
            (fact.is_chosen, fact.queue) = (true, "bandwidth".to_owned());
        }
    }
}

fn found(shown: &ShapedFact, at: &LinkRef, hook: Hook, wanted: Limit) -> Result<(), String> {
    match shown.programs.iter().find(|program| program.hook == hook) {
        None => Err(format!("no program shapes {hook:?} of link {at}")),
        Some(program) if program.limit == wanted => Ok(()),
        Some(ProgramFact { limit, .. }) => Err(format!(
            "{hook:?} of link {at} is held to {limit}, not to {wanted}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::IfName;

    fn shaper(toward: Toward, bps: u64) -> Shaper {
        let at = LinkRef::pod(IfName::parse("eth0").expect("a name"));
        Shaper {
            at,
            toward,
            queue: Queue::Fq,
            rate: Rate { bps, burst: 8_000 },
            mtu: 1500,
        }
    }

    #[test]
    fn a_packet_is_marked_when_two_of_the_largest_wait_but_well_before_it_would_be_dropped() {
        let of = |bps| shaper(Toward::Pod, bps).ecn_ns();
        assert_eq!(of(1_000_000_000), 5 * MS_NS);
        // 128 KiB at 100 Mbit/s
        assert_eq!(of(100_000_000), 10_485_760);
        assert_eq!(of(1_000_000), HORIZON_NS / 2);
    }

    #[test]
    fn ten_of_the_largest_packets_of_a_socket_may_wait_but_at_a_low_rate_fewer() {
        let of = |bps| shaper(Toward::Pod, bps).socket_horizon_ns();
        assert_eq!(of(1_000_000_000), HORIZON_NS);
        // 640 KiB at 20 Mbit/s
        assert_eq!(of(20_000_000), 262_144_000);
        assert_eq!(of(1_000_000), 500 * MS_NS);
    }

    #[test]
    fn as_many_packets_may_wait_as_fit_into_twice_the_horizon() {
        let of = |bps| shaper(Toward::Pod, bps).most_packets();
        assert_eq!(of(10_000_000), 20_000);
        // 600 ms of it in packets of 1514 bytes
        assert_eq!(of(10_000_000_000), 495_376);
        assert_eq!(of(u64::MAX), u32::MAX);
    }

    #[test]
    fn times_of_extreme_rates_saturate() {
        let slow = Rate {
            bps: 8,
            burst: u64::MAX,
        };
        assert_eq!(slow.burst_ns(), u64::MAX);
        assert_eq!(slow.time_of(1), 1_000_000_000);
        assert_eq!(
            Rate {
                bps: u64::MAX,
                burst: 1
            }
            .burst_ns(),
            0
        );
        let fastest = Shaper {
            rate: Rate {
                bps: u64::MAX,
                burst: 0,
            },
            ..shaper(Toward::Network, 8)
        };
        assert_eq!(
            (fastest.guard_bps(), fastest.guard_depth_ns()),
            (u64::MAX, 100 * MS_NS)
        );
    }

    #[test]
    fn a_large_packet_is_cut_at_low_rates_only() {
        let of = |bps| shaper(Toward::Network, bps).gso_max_size();
        assert_eq!(of(1_000_000_000), None);
        // 5 ms of it
        assert_eq!(of(20_000_000), Some(12_500));
        assert_eq!(of(1_000_000), Some(3_000), "two packets of the MTU");
        assert_eq!(
            Shaper {
                mtu: 65_535,
                ..shaper(Toward::Network, 1_000_000)
            }
            .gso_max_size(),
            None
        );
    }

    #[test]
    fn a_token_bucket_holds_a_packet_and_queues_as_the_reference() {
        let slow = shaper(Toward::Pod, 8_000_000);
        assert_eq!((slow.bucket(), slow.bucket_queue()), (1514, 25_000 + 1514));
        let wide = Shaper {
            rate: Rate {
                bps: 8_000_000,
                burst: 800_000,
            },
            ..slow
        };
        assert_eq!((wide.bucket(), wide.bucket_queue()), (100_000, 125_000));
        assert_eq!(wide.codel_target_ns(), 5 * MS_NS);
        // 48 segments of 1366 bytes and more, and what the container's stack is told to cut to.
        assert_eq!(
            shaper(Toward::Pod, 8_000_000).bucket_of_large(),
            65_536 + 48 * 134 + 1_000
        );
        assert_eq!(
            shaper(Toward::Network, 8_000_000).bucket_of_large(),
            5_000 + 4 * 134 + 1_000
        );
        assert_eq!(wide.bucket_of_large(), 100_000);
        assert_eq!(shaper(Toward::Pod, 1_000_000).codel_target_ns(), 24_224_000);
    }
}
