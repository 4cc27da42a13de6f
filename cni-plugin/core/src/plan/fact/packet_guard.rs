//! A limit of packet sockets as the kernel reports it.

use serde::{Deserialize, Serialize};

/// Rate and burst of packet sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketLimit {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes of a burst, in addition to the bytes of one second (v6.12
    /// `net/netfilter/nft_limit.c`).
    pub burst: u32,
}

/// A [`PacketGuard`] as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketGuardFact {
    /// The limit.
    pub limit: PacketLimit,
    /// Number of dropped packets.
    pub dropped: u64,
}
