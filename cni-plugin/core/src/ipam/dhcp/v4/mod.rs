//! DHCPv4 client (RFC 2131) of one link.

pub mod frame;
mod identity;
pub mod lease;
pub mod machine;
pub mod message;
mod number;

pub use identity::Identity;
pub use lease::LeaseV4;
pub use machine::{Client, Event, Packet};
pub use message::Message;
pub(super) use number::{CLIENT_ID, HOST_NAME, ROUTERS, SUBNET_MASK, USER_CLASS, VENDOR_CLASS};
pub use number::{CLIENT_PORT, SERVER_PORT};
