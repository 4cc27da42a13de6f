//! Shaping (rate limits) of a link, as the kernel reports it.

use crate::name::Hook;
use serde::Serialize;
use std::fmt;

/// Shaping (rate limits) of a link, as the kernel reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShapedFact {
    /// Kind of the root qdisc, for example `fq`.
    pub queue: String,
    /// True if the root qdisc was chosen by an administrator or a program: it is not the kernel's
    /// default.
    pub is_chosen: bool,
    /// True if an `ingress` qdisc occupies the handle of `clsact`. An egress filter would then see
    /// received packets.
    pub has_ingress: bool,
    /// Rate of the root qdisc in bits per second; `None` if an eBPF program limits the rate.
    pub bps: Option<u64>,
    /// Traffic through the root qdisc.
    pub passed: Traffic,
    /// braid's eBPF programs on the link.
    pub programs: Vec<ProgramFact>,
    /// Interface index of the link to which received packets are redirected.
    pub redirected_to: Option<u32>,
}

/// One of braid's eBPF programs on a link, with its limit and its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFact {
    /// Direction of the packets that the program processes.
    pub hook: Hook,
    /// Rate limit that the program enforces.
    pub limit: Limit,
    /// Traffic through the program.
    pub passed: Traffic,
}

/// Rate limit that an eBPF program enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Rate in bits per second.
    pub bps: u64,
    /// Burst, as the time in nanoseconds that it takes at the rate.
    pub burst_ns: u64,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bit/s with a burst of {} ns", self.bps, self.burst_ns)
    }
}

/// Packet counts of one direction, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Bytes passed, at layer 2.
    pub bytes: u64,
    /// Packets passed; a packet of several segments counts once.
    pub packets: u64,
    /// Passed packets that had to wait.
    pub delayed: u64,
    /// Packets dropped because they would have waited too long.
    pub dropped: u64,
    /// Passed packets marked with ECN.
    pub marked: u64,
    /// Passed packets that bypassed the queue.
    pub bypassed: u64,
    /// Packets of packet sockets that were dropped and `AF_XDP` sockets that were refused, because
    /// both bypass the queue.
    pub guarded: u64,
}
