//! Address assignment (IPAM): the addresses that an attachment may get. The CNI commands of each
//! IPAM plugin and the storage of leases are in the crate braid-node.
//!
//! ```text
//!  configuration ─► host_local: range::RangeSet ─► allocator: order of addresses ─┐
//!                └► static_ip ────────────────────────────────────────────────────┴─► lease::Lease
//! ```

mod checksum;
pub mod configuration;
pub mod dhcp;
pub mod host_local;
pub mod lease;
pub mod probe;
pub mod range;
pub mod static_ip;
pub mod whereabouts;

pub use lease::{Claim, Lease};
