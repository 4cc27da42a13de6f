//! Lease that an IPAM gives an attachment.

use crate::cni::{AddResult, Dns, IpConfig, Route};
use std::net::IpAddr;

/// Addresses, routes and name resolution for one attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// Addresses; their `interface` is unset.
    pub ips: Vec<IpConfig>,
    /// Routes from the IPAM configuration.
    pub routes: Vec<Route>,
    /// Name resolution from the IPAM configuration.
    pub dns: Dns,
}

/// Owner of an attachment's addresses that outlives containers and keeps the addresses between
/// them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Owner of the addresses, in place of a container id.
    pub owner: String,
    /// Addresses of the owner; empty if any address will do.
    pub addresses: Vec<IpAddr>,
}

impl From<Lease> for AddResult {
    fn from(lease: Lease) -> Self {
        AddResult {
            interfaces: Vec::new(),
            ips: lease.ips,
            routes: lease.routes,
            dns: lease.dns,
        }
    }
}
