//! A link's shaping, as the kernel shows it.

use crate::name::Hook;
use serde::Serialize;
use std::fmt;

/// A link's shaping, as the kernel shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShapedFact {
    /// Kind of the root queue.
    pub queue: String,
    /// Somebody chose the root queue: it is not the one that the kernel gives each link.
    pub is_chosen: bool,
    /// An `ingress` queue takes the place of `clsact`: a filter for what leaves would see what
    /// comes in.
    pub has_ingress: bool,
    /// Rate of the root queue itself, in bits per second; none where it leaves that to a program.
    pub bps: Option<u64>,
    /// Traffic of the root queue.
    pub passed: Traffic,
    /// braid's programs on it.
    pub programs: Vec<ProgramFact>,
    /// Index of the link through which all that comes in leaves.
    pub redirected_to: Option<u32>,
}

/// A program that shapes or guards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFact {
    /// The packets that it sees.
    pub hook: Hook,
    /// The limit that it applies to them.
    pub limit: Limit,
    /// Traffic of the program.
    pub passed: Traffic,
}

/// The limit that a program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Bits per second.
    pub bps: u64,
    /// Burst that may come at once, as its time at the rate, in nanoseconds.
    pub burst_ns: u64,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bit/s with a burst of {} ns", self.bps, self.burst_ns)
    }
}

/// Counts of the packets of one direction, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Bytes let through at layer 2.
    pub bytes: u64,
    /// Packets let through; one of several segments counts once.
    pub packets: u64,
    /// Of the packets, those that had to wait.
    pub delayed: u64,
    /// Not let through: they would have waited too long.
    pub dropped: u64,
    /// Of the packets, those marked with ECN.
    pub marked: u64,
    /// Of the packets, those that passed others.
    pub bypassed: u64,
    /// Dropped by the guards, and sockets that they refused.
    pub guarded: u64,
}
