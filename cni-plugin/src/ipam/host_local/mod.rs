//! The `host-local` IPAM: addresses of this node's ranges, kept as files like the reference plugin's.

pub mod allocator;
pub mod store;
