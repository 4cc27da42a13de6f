//! `dhcp`: addresses from a DHCP server, requested through the container's own link.
//!
//! ```text
//!  config ─► session ─┬─ v4: machine, message, frame ─┬─► packets, events of the lease
//!                     └─ v6: machine, message ────────┴─ client: the state machine of both
//!  rpc ─► the reference daemon's protocol
//! ```
//!
//! The machines are values. Time since boot, random numbers and messages go in, packets and events
//! come out.

pub mod client;
pub mod config;
pub mod rpc;
pub mod session;
pub mod timing;
pub mod v4;
pub mod v6;

pub use config::DhcpConfig;
pub use session::{Output, Session};
