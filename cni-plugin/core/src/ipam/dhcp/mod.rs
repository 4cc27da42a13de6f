//! `dhcp`: addresses from a DHCP server, asked for through the container's own link.
//!
//! ```text
//!  config ─► session ─┬─ v4: machine, message, frame ─┬─► packets, and what became of the lease
//!                     └─ v6: machine, message ────────┴─ client: the states of both
//!  rpc ─► the reference daemon's protocol
//! ```
//!
//! The machines are values: time since boot, random numbers and messages in, packets and events
//! out.

pub mod client;
pub mod config;
pub mod rpc;
pub mod session;
pub mod timing;
pub mod v4;
pub mod v6;

pub use config::Config;
pub use session::{Output, Session};
