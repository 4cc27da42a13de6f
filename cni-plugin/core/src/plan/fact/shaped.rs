//! Shaping of a link as the kernel reports it.

use crate::name::Hook;
use serde::Serialize;
use std::fmt;

/// Shaping of a link as the kernel reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShapedFact {
    /// Kind of the root queue.
    pub queue: String,
    /// True if the root queue was chosen by an administrator or a program: it is not the kernel's
    /// default.
    pub is_chosen: bool,
    /// True if an `ingress` queue occupies the handle of `clsact`. An egress filter would then see
    /// received packets.
    pub has_ingress: bool,
    /// Rate of the root queue itself, in bits per second; `None` if a program limits the rate.
    pub bps: Option<u64>,
    /// Traffic through the root queue.
    pub passed: Traffic,
    /// braid's programs on the link.
    pub programs: Vec<ProgramFact>,
    /// Index of the link that received packets are redirected to.
    pub redirected_to: Option<u32>,
}

/// A program that shapes or guards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFact {
    /// Hook of the program.
    pub hook: Hook,
    /// Limit of the program.
    pub limit: Limit,
    /// Traffic through the program.
    pub passed: Traffic,
}

/// The limit configured for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Bits per second.
    pub bps: u64,
    /// Burst, as its time at the rate, in nanoseconds.
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
    /// Packets dropped by the guards, and sockets refused by them.
    pub guarded: u64,
}
