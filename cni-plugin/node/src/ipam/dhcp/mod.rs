//! Leases of DHCP: where a daemon keeps them, and the links that they are got through.

pub mod link;
pub mod store;
