//! The `host-local` IPAM, as far as it decides: its configuration, and the order of addresses.

pub mod allocator;
pub mod config;

pub use config::Config;
