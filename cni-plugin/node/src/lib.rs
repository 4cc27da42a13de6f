//! Node side of braid: reads the node, applies the plans of braid-core and records them. A library
//! for the plugin call and for other programs that work on a node.
//!
//! ```text
//!  attach ─ CNI verbs, for a whole plugin list       ipam ─ reserving and releasing addresses
//!  apply ─ observe, execute, roll back, repair       effect ─ create and delete each kind of thing
//!  kernel ─ netlink sockets of a call, link parser   store ─ records, owners, locks
//!  source ─ pods and their networks                  dhcpd ─ daemon of the dhcp IPAM
//!  erase ─ deletion of what calls share              snapshot ─ kernel objects as JSON, for a report
//!  takeover ─ the conflist made from the node's    sys ─ all system calls; no knowledge of plans
//! ```

#![deny(clippy::wildcard_enum_match_arm)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[forbid(unsafe_code)]
pub mod apply;
#[forbid(unsafe_code)]
pub mod attach;
#[forbid(unsafe_code)]
pub mod dhcpd;
#[forbid(unsafe_code)]
pub mod effect;
#[forbid(unsafe_code)]
pub mod erase;
#[forbid(unsafe_code)]
mod error;
#[forbid(unsafe_code)]
pub mod ipam;
#[forbid(unsafe_code)]
pub mod kernel;
#[forbid(unsafe_code)]
pub mod log;
#[forbid(unsafe_code)]
pub mod snapshot;
#[forbid(unsafe_code)]
pub mod source;
#[forbid(unsafe_code)]
pub mod store;
pub mod sys;
#[forbid(unsafe_code)]
pub mod takeover;

pub(crate) use error::Context;
pub use error::{Cause, Error};
