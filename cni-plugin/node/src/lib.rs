//! Reads and changes the node: it carries out what braid-core decided, and remembers it. A library
//! for the plugin call, and for others that work on a node.
//!
//! ```text
//!  attach ─ each verb of CNI, for a whole chain      ipam ─ reserving and releasing addresses
//!  apply ─ observe, carry out, roll back, repair     effect ─ of each kind of thing
//!  kernel ─ the sockets of one call, links as shown  store ─ records, owners, locks
//!  source ─ where pods and their networks come from  dhcpd ─ the daemon of the dhcp IPAM
//!  sys ─ every system call; knows no plan
//! ```

#![deny(clippy::wildcard_enum_match_arm)]

#[forbid(unsafe_code)]
pub mod apply;
#[forbid(unsafe_code)]
pub mod attach;
#[forbid(unsafe_code)]
pub mod dhcpd;
#[forbid(unsafe_code)]
pub mod effect;
#[forbid(unsafe_code)]
mod error;
#[forbid(unsafe_code)]
pub mod ipam;
#[forbid(unsafe_code)]
pub mod kernel;
#[forbid(unsafe_code)]
pub mod source;
#[forbid(unsafe_code)]
pub mod store;
pub mod sys;

pub(crate) use error::Context;
pub use error::{Cause, Error};
