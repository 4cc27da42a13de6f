//! The `host-local` IPAM without its storage: configuration, and the order of addresses.

pub mod allocator;
pub mod config;

pub use config::HostLocalConfig;
