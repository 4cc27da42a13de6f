//! Rate limit of packet sockets (`AF_PACKET`), as the kernel reports it.

use serde::{Deserialize, Serialize};

/// Rate and burst that packet sockets (`AF_PACKET`) may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketLimit {
    /// Rate in bytes per second.
    pub rate: u64,
    /// Burst in bytes. The kernel adds it to the bytes of one second at the rate (v6.12
    /// `net/netfilter/nft_limit.c`).
    pub burst: u32,
}

/// The rate limit of packet sockets on a link, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketGuardFact {
    /// Rate and burst of the limit.
    pub limit: PacketLimit,
    /// Number of packets that the limit has dropped.
    pub dropped: u64,
}
