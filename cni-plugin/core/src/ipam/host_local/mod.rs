//! The `host-local` IPAM plugin without its storage: configuration, and the order of addresses.

pub mod allocator;
pub mod config;

pub use config::HostLocalConfig;
