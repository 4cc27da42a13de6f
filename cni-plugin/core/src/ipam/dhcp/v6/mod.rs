//! The client of DHCPv6 (RFC 8415) for one address of one link. Routes come by router
//! advertisements, not from here.

pub mod machine;
pub mod message;

pub use machine::{Client, Event, LeaseV6};
pub use message::Message;

use sha2::{Digest, Sha256};

/// Port of a server.
pub const SERVER_PORT: u16 = 547;
/// Port of a client.
pub const CLIENT_PORT: u16 = 546;

/// The client that a link is for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its unique identifier: a UUID (RFC 6355).
    pub duid: Vec<u8>,
    /// The number of its one association of addresses.
    pub iaid: [u8; 4],
}

impl Identity {
    /// The identity that follows from a text, always the same.
    pub fn of(text: &str) -> Self {
        const UUID: [u8; 2] = [0, 4];
        let digest = Sha256::digest(text.as_bytes());
        let mut uuid: [u8; 16] = digest.first_chunk().copied().unwrap_or_default();
        // A UUID of the version for private use, in the usual variant (RFC 9562).
        uuid[6] = uuid[6] & 0xf | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let iaid = digest[16..].first_chunk().copied().unwrap_or_default();
        Self {
            duid: [&UUID[..], &uuid].concat(),
            iaid,
        }
    }
}
