//! The client that a server sees.

use crate::name::Mac;

/// The client that a link is for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The link's hardware address.
    pub mac: Mac,
    /// Options of each message, the client's identifier among them.
    pub options: Vec<(u8, Vec<u8>)>,
    /// Codes of the requested options.
    pub request: Vec<u8>,
    /// The answers are to be broadcast: the link can't get them otherwise.
    pub broadcast: bool,
}
