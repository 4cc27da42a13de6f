//! Lease that an IPAM plugin gives an attachment.

use crate::cni::{AddResult, Dns, IpConfig, Route};
use std::net::IpAddr;

/// Addresses, routes and name resolution for one attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// Addresses. The field `interface` of each address is unset.
    pub ips: Vec<IpConfig>,
    /// Routes from the IPAM configuration.
    pub routes: Vec<Route>,
    /// Name resolution from the IPAM configuration.
    pub dns: Dns,
}

/// Claim to an attachment's addresses by an owner that outlives containers. The owner keeps the
/// addresses from one container to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Owner id of the addresses, used in place of a container id.
    pub owner: String,
    /// Addresses that the owner already has; empty if any address will do.
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
