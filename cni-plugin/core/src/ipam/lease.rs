//! The lease that an IPAM gives an attachment.

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

/// On whose behalf an attachment gets addresses: somebody who outlives containers, and holds them
/// meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The holder of them, in the place of a container's id.
    pub owner: String,
    /// Those that it has; none where it takes what it is given.
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
