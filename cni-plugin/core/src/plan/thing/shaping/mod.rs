//! Shaping (rate limits) of an attachment: the requested rates, and the qdisc parameters computed
//! from them.

mod print;

use crate::name::Hook;
pub use crate::plan::fact::shaped::{Limit, ProgramFact, ShapedFact, Traffic};

use super::state::{State, Verb, lines};
use crate::name::Ns;
use crate::plan::fact::link_ref::LinkRef;
use crate::plan::facts::{Facts, Need};
use crate::plan::queue_fallback::Queue;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;

const SECOND_NS: u128 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;
/// Largest packet in bytes that the stack passes to a device (`GSO_LEGACY_MAX_SIZE`).
const GSO_MAX: u64 = 64 * 1024;
/// Maximum time in milliseconds that one packet takes at the rate. Below 2 ms, the sender's stack
/// passes too little at a time to reach the rate.
const GSO_MS: u64 = 5;
/// Longest wait of a packet in the reference plugin's qdisc, in milliseconds.
const REFERENCE_MS: u64 = 25;
/// Wait in nanoseconds above which a packet is dropped if other packets of its flow are waiting.
pub const HORIZON_NS: u64 = 100 * MS_NS;
/// Additional wait in nanoseconds that a packet may have if no other packet of its flow is waiting.
pub const FIRST_NS: u64 = 200 * MS_NS;
const ETHERNET_HEADER: u64 = 14;
/// Largest delay of a timer in milliseconds, except on a fully loaded machine.
const LATE_MS: u64 = 1;

/// A rate and the burst allowed beyond it, both counted at layer 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Rate in bits per second, at least 8.
    pub bps: u64,
    /// Burst in bits.
    pub burst: u64,
}

impl Rate {
    /// More than any link sends: the rate of a direction that was limited and no longer is.
    pub const UNREACHED: Self = Self {
        bps: 8 << 40,
        burst: u32::MAX as u64,
    };

    /// Returns the time that `bytes` take at the rate, in nanoseconds.
    pub fn time_of(self, bytes: u64) -> u64 {
        nanoseconds(u128::from(bytes) * 8, self.bps)
    }

    /// Returns the time that the burst takes at the rate, in nanoseconds.
    pub fn burst_ns(self) -> u64 {
        nanoseconds(u128::from(self.burst), self.bps)
    }

    /// Returns the number of bytes that pass in `ms` milliseconds at the rate.
    pub fn bytes_in(self, ms: u64) -> u64 {
        u64::try_from(u128::from(self.bps) * u128::from(ms) / 8000).unwrap_or(u64::MAX)
    }
}

fn nanoseconds(bits: u128, bps: u64) -> u64 {
    u64::try_from(bits * SECOND_NS / u128::from(bps.max(1))).unwrap_or(u64::MAX)
}

/// Direction of the packets that are shaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Toward {
    /// Network to container: `ingress` in configurations.
    Pod,
    /// Container to network: `egress` in configurations.
    Network,
}

impl Toward {
    /// Returns the name of the direction in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pod => "ingress",
            Self::Network => "egress",
        }
    }

    /// Returns the direction with this name in configurations.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Pod, Self::Network]
            .into_iter()
            .find(|toward| toward.name() == name)
    }
}

/// Shaping of the packets that leave through a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shaper {
    /// The link through which the packets leave.
    pub at: LinkRef,
    /// Direction of the packets: to the container or to the network.
    pub toward: Toward,
    /// Qdisc that delays the packets.
    pub queue: Queue,
    /// Rate limit and burst.
    pub rate: Rate,
    /// The link's MTU in bytes.
    pub mtu: u32,
}

impl Shaper {
    /// Returns the longest wait in nanoseconds of a packet from a socket of this node or its
    /// containers. For other packets the longest wait is [`HORIZON_NS`]. The time is enough to send
    /// ten of the largest packets, because a socket slows down as more of its packets wait. It is
    /// at most 500 ms, which limits the wait of other packets at a low rate.
    pub fn socket_horizon_ns(&self) -> u64 {
        self.rate
            .time_of(10 * GSO_MAX)
            .clamp(HORIZON_NS, 500 * MS_NS)
    }

    /// Returns the longest wait of any packet, in nanoseconds.
    pub fn longest_ns(&self) -> u64 {
        self.socket_horizon_ns() + FIRST_NS
    }

    /// Returns the wait in nanoseconds above which a packet is marked with ECN. Two of the largest
    /// packets must fit into this time, or a single flow would be slowed below the rate. A packet
    /// is marked well before it would be dropped.
    pub fn ecn_ns(&self) -> u64 {
        self.rate
            .time_of(2 * GSO_MAX)
            .clamp(5 * MS_NS, HORIZON_NS / 2)
    }

    /// Returns the maximum number of packets in `fq`, at least 20,000. Full-size packets reach the
    /// longest wait before they reach this number.
    pub fn most_packets(&self) -> u32 {
        const LEAST: u32 = 20_000;
        let full = u64::from(self.mtu) + ETHERNET_HEADER;
        let packets = self.rate.bytes_in(2 * self.longest_ns() / MS_NS) / full;
        u32::try_from(packets).unwrap_or(u32::MAX).max(LEAST)
    }

    /// Returns the size of a `tbf` token bucket in bytes. It holds at least one full-size packet,
    /// because a packet larger than the bucket would never pass.
    pub fn bucket(&self) -> u64 {
        (self.rate.burst / 8).max(u64::from(self.mtu) + ETHERNET_HEADER)
    }

    /// Returns the size in bytes of a token bucket behind braid's eBPF program. The bucket has at
    /// least the size of the burst. It also has space for the largest packet plus the tokens that
    /// accumulate while a timer is late. A packet waits until the bucket holds enough tokens for
    /// all of it.
    pub fn bucket_of_large(&self) -> u64 {
        let packet = match self.toward {
            Toward::Pod => GSO_MAX,
            Toward::Network => self.gso_max_size().map_or(GSO_MAX, u64::from),
        };
        let late = self.rate.bytes_in(LATE_MS);
        (self.rate.burst / 8).max(late.saturating_add(self.with_headers(packet)))
    }

    /// Returns the bytes of a large packet with the headers of all its segments.
    fn with_headers(&self, packet: u64) -> u64 {
        // Headers of Ethernet, IP and TCP with all options, for each segment.
        const HEADERS: u64 = ETHERNET_HEADER + 60 + 60;
        let segments = packet.div_ceil(u64::from(self.mtu).saturating_sub(HEADERS).max(HEADERS));
        packet + segments * HEADERS
    }

    /// Returns the shaper with this rate for packets that may already wait. A token bucket gets a
    /// burst that holds the largest one: it would never let a larger one pass.
    #[must_use]
    pub fn retuned(&self, rate: Rate) -> Self {
        let largest = 8 * self.with_headers(GSO_MAX);
        let burst = match self.queue {
            Queue::TbfPfifoFast | Queue::TbfFqCodel | Queue::Tbf => rate.burst.max(largest),
            Queue::Fq | Queue::Htb => rate.burst,
        };
        Self {
            rate: Rate { burst, ..rate },
            ..self.clone()
        }
    }

    /// Returns the burst that the clock of the eBPF program allows, in nanoseconds. It is the burst
    /// of the qdisc behind the program, because the clock models that qdisc.
    pub fn clock_burst_ns(&self) -> u64 {
        match self.queue {
            Queue::TbfPfifoFast => self.rate.time_of(self.bucket_of_large()),
            Queue::Fq | Queue::Htb | Queue::TbfFqCodel | Queue::Tbf => self.rate.burst_ns(),
        }
    }

    /// Returns the number of bytes that may wait at a token bucket without an eBPF program, as in
    /// the reference plugin.
    pub fn bucket_queue(&self) -> u64 {
        self.rate
            .bytes_in(REFERENCE_MS)
            .saturating_add(self.bucket())
    }

    /// Returns the wait in nanoseconds above which `fq_codel` below a token bucket marks or drops
    /// packets: at least 5 ms, and enough for two packets.
    pub fn codel_target_ns(&self) -> u64 {
        (5 * MS_NS).max(
            self.rate
                .time_of(2 * (u64::from(self.mtu) + ETHERNET_HEADER)),
        )
    }

    /// Returns the largest packet in bytes that the container's stack should pass at a time. At a
    /// low rate, a larger packet would delay all others. `None` if even the largest possible packet
    /// causes no such delay.
    pub fn gso_max_size(&self) -> Option<u32> {
        let least = 2 * u64::from(self.mtu);
        let size = self
            .rate
            .bytes_in(GSO_MS)
            .clamp(least.min(GSO_MAX), GSO_MAX);
        u32::try_from(size).ok().filter(|_| size < GSO_MAX)
    }

    /// Returns the rate in bits per second for the guard of packet sockets. It is a tenth above the
    /// shaper's rate, so the guard never drops packets that the shaper passed.
    pub fn guard_bps(&self) -> u64 {
        self.rate.bps.saturating_add(self.rate.bps / 10)
    }

    /// Returns the burst for a guard, as a time in nanoseconds at the rate. It is 100 ms more than
    /// the burst that the clock of the eBPF program allows.
    pub fn guard_depth_ns(&self) -> u64 {
        self.clock_burst_ns().saturating_add(100 * MS_NS)
    }
}

/// Shaping (rate limits) of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shaping {
    /// Owner: network, container id and interface ([`crate::cni::Owner::short`]).
    pub owner: String,
    /// A shaper for each shaped direction.
    pub shapers: Vec<Shaper>,
    /// Subnets that select the shaped packets; `None` shapes all.
    pub subnets: Option<Subnets>,
}

/// Subnets that select packets by the remote address: the source of received packets, the
/// destination of sent packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnets {
    /// True to shape only packets of these subnets; false to shape all other packets.
    pub only: bool,
    /// At most 64 subnets.
    pub nets: Vec<IpNet>,
}

impl Shaping {
    /// Returns the shaper of a direction; `None` if the direction is not shaped.
    pub fn shaper(&self, toward: Toward) -> Option<&Shaper> {
        self.shapers.iter().find(|shaper| shaper.toward == toward)
    }

    /// True if all links are in the namespace `ns`. If that is the container's namespace, the
    /// shaping ends when the namespace does.
    pub fn is_all_in(&self, ns: Ns) -> bool {
        self.links().all(|link| link.ns == ns)
    }
}

impl Shaping {
    /// Returns all links that the shaping changes.
    pub fn links(&self) -> impl Iterator<Item = &LinkRef> {
        self.shapers.iter().map(|shaper| &shaper.at)
    }
}

impl State for Shaping {
    fn ns(&self) -> Ns {
        self.links().next().map_or(Ns::Host, |at| at.ns)
    }

    /// Writes the `tc` commands of each link. The rate is in the map of the eBPF program, which no
    /// command writes.
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
                    "link {at} has root qdisc {:?}, not {kind}",
                    shown.queue
                ));
            }
            let (bps, burst_ns) = (shaper.rate.bps, shaper.clock_burst_ns());
            if let Some(held) = shown.bps.filter(|held| *held / 8 != bps / 8) {
                return Err(format!(
                    "the queue of link {at} is limited to {held} bit/s, not to {bps}"
                ));
            }
            if shaper.queue.has_program() {
                found(&shown, at, Hook::Egress, Limit { bps, burst_ns })?;
            }
        }
        Ok(())
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

    fn drop_parts(&mut self, gone: &[&LinkRef]) {
        self.shapers.retain(|shaper| !gone.contains(&&shaper.at));
    }

    /// True if both shape a common link.
    fn is_same(&self, other: &Self) -> bool {
        self.links()
            .any(|at| other.links().any(|there| there == at))
    }
}

fn found(shown: &ShapedFact, at: &LinkRef, hook: Hook, wanted: Limit) -> Result<(), String> {
    match shown.programs.iter().find(|program| program.hook == hook) {
        None => Err(format!("no program shapes {hook:?} of link {at}")),
        Some(program) if program.limit == wanted => Ok(()),
        Some(ProgramFact { limit, .. }) => Err(format!(
            "{hook:?} of link {at} is limited to {limit}, not to {wanted}"
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
    fn marking_allows_two_large_packets_and_precedes_dropping() {
        let ecn = |bps| shaper(Toward::Pod, bps).ecn_ns();
        assert_eq!(ecn(1_000_000_000), 5 * MS_NS);
        // 128 KiB at 100 Mbit/s
        assert_eq!(ecn(100_000_000), 10_485_760);
        assert_eq!(ecn(1_000_000), HORIZON_NS / 2);
    }

    #[test]
    fn a_sockets_horizon_fits_ten_large_packets_except_at_low_rates() {
        let horizon = |bps| shaper(Toward::Pod, bps).socket_horizon_ns();
        assert_eq!(horizon(1_000_000_000), HORIZON_NS);
        // 640 KiB at 20 Mbit/s
        assert_eq!(horizon(20_000_000), 262_144_000);
        assert_eq!(horizon(1_000_000), 500 * MS_NS);
    }

    #[test]
    fn the_packet_limit_covers_twice_the_longest_wait() {
        let most = |bps| shaper(Toward::Pod, bps).most_packets();
        assert_eq!(most(10_000_000), 20_000);
        // 600 ms at the rate in packets of 1514 bytes
        assert_eq!(most(10_000_000_000), 495_376);
        assert_eq!(most(u64::MAX), u32::MAX);
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
    fn gso_packets_are_limited_at_low_rates_only() {
        let gso_max = |bps| shaper(Toward::Network, bps).gso_max_size();
        assert_eq!(gso_max(1_000_000_000), None);
        // 5 ms at the rate
        assert_eq!(gso_max(20_000_000), Some(12_500));
        assert_eq!(gso_max(1_000_000), Some(3_000), "two packets of the MTU");
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
    fn a_token_bucket_holds_a_packet_and_queues_like_the_reference() {
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
        // 48 segments of 1366 bytes and more, and the size configured for the container's stack.
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
