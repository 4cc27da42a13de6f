//! Addresses: which ones an attachment may get. The verbs of each IPAM, and who keeps a lease, are
//! in braid-node.
//!
//! ```text
//!  configuration ─► host_local: range::RangeSet ─► allocator: which address next ─┐
//!                └► static_ip ──────────────────────────────────────────────────────┴─► lease::Lease
//! ```

pub mod configuration;
pub mod dhcp;
pub mod host_local;
pub mod lease;
pub mod range;
pub mod static_ip;

pub use lease::{Claim, Lease};
