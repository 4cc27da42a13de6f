//! DHCPv4 client identity.

use crate::name::Mac;

/// Identity of a link as a DHCPv4 client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Hardware address of the link.
    pub mac: Mac,
    /// Options in each message, as code and value, including the client identifier.
    pub options: Vec<(u8, Vec<u8>)>,
    /// Codes of the options that the client requests from servers.
    pub request: Vec<u8>,
    /// True if servers must broadcast their answers, because the link can't receive them otherwise.
    pub broadcast: bool,
}
