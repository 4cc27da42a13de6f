//! DHCPv4 client identity.

use crate::name::Mac;

/// Identity of a link as a DHCPv4 client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Hardware address of the link.
    pub mac: Mac,
    /// Options of each message, including the client identifier.
    pub options: Vec<(u8, Vec<u8>)>,
    /// Codes of the requested options.
    pub request: Vec<u8>,
    /// True if servers must broadcast their answers, because the link can't receive them otherwise.
    pub broadcast: bool,
}
