//! The client of DHCPv4 (RFC 2131) for one link.

pub mod frame;
pub mod lease;
pub mod machine;
pub mod message;

pub use lease::Lease;
pub use machine::{Client, Event, Packet};
pub use message::Message;

use crate::name::Mac;

/// Port of a server.
pub const SERVER_PORT: u16 = 67;
/// Port of a client.
pub const CLIENT_PORT: u16 = 68;

// Options, by RFC 2132 and RFC 3442.
pub(super) const SUBNET_MASK: u8 = 1;
pub(super) const ROUTERS: u8 = 3;
pub(super) const HOST_NAME: u8 = 12;
const STATIC_ROUTES: u8 = 33;
const REQUESTED_ADDRESS: u8 = 50;
const LEASE_TIME: u8 = 51;
const OVERLOAD: u8 = 52;
const MESSAGE_TYPE: u8 = 53;
const SERVER_ID: u8 = 54;
const REQUEST_LIST: u8 = 55;
const MAX_SIZE: u8 = 57;
const RENEWAL_TIME: u8 = 58;
const REBINDING_TIME: u8 = 59;
pub(super) const VENDOR_CLASS: u8 = 60;
pub(super) const CLIENT_ID: u8 = 61;
pub(super) const USER_CLASS: u8 = 77;
const CLASSLESS_ROUTES: u8 = 121;

/// The client that a link is for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The link's hardware address.
    pub mac: Mac,
    /// Options of each message, the client's identifier among them.
    pub options: Vec<(u8, Vec<u8>)>,
    /// Options that are asked for.
    pub request: Vec<u8>,
    /// The answers are to be broadcast: the link can't get them otherwise.
    pub broadcast: bool,
}
