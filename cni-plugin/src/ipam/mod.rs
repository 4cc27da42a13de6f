//! Addresses: which ones an attachment gets, and who remembers it.
//!
//! ```text
//!  config ─► range::RangeSet ─► host_local::{allocator (pure), store (files)} ─┐
//!  config ─► static_ip ─────────────────────────────────────────────────────────┴─► lease::Lease
//! ```

pub mod host_local;
pub mod lease;
pub mod range;
pub mod static_ip;

pub use lease::{Lease, Owner};
