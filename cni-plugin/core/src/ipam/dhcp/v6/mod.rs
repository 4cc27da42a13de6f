//! DHCPv6 client (RFC 8415) for one address of one link. Routes come from router advertisements,
//! not from DHCPv6.

pub mod machine;
pub mod message;

pub use machine::{Client, Event, LeaseV6};
pub use message::Message;

use sha2::{Digest, Sha256};

/// UDP port of DHCPv6 servers.
pub const SERVER_PORT: u16 = 547;
/// UDP port of DHCPv6 clients.
pub const CLIENT_PORT: u16 = 546;

/// Identity of a link as a DHCPv6 client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// DHCP unique identifier (DUID): a UUID (RFC 6355).
    pub duid: Vec<u8>,
    /// Id of the identity association (IAID).
    pub iaid: [u8; 4],
}

impl Identity {
    /// Returns an identity derived from `text`. The same text always gives the same identity.
    pub fn of(text: &str) -> Self {
        const UUID: [u8; 2] = [0, 4];
        let digest = Sha256::digest(text.as_bytes());
        let mut uuid: [u8; 16] = digest.first_chunk().copied().unwrap_or_default();
        // A UUID of version 8, for custom use, in the RFC 9562 variant.
        uuid[6] = uuid[6] & 0xf | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let iaid = digest[16..].first_chunk().copied().unwrap_or_default();
        Self {
            duid: [&UUID[..], &uuid].concat(),
            iaid,
        }
    }
}
