//! The `dhcp` IPAM plugin: addresses from a DHCP server, requested through the container's link.
//!
//! ```text
//!  config ─► session ─┬─ v4: machine, message, frame ─┬─► packets, events of the lease
//!                     └─ v6: machine, message ────────┴─ client: the state machine of both
//!  rpc ─► the reference daemon's protocol
//! ```
//!
//! The state machines do no I/O. Their inputs are the time since boot, random numbers and received
//! messages. Their outputs are packets and events.

pub mod client;
pub mod config;
pub mod rpc;
pub mod session;
pub mod timing;
pub mod v4;
pub mod v6;

pub use config::DhcpConfig;
pub use session::{Output, Session};
