//! The lease that an IPAM gives an attachment.

use crate::cni::{AddResult, Dns, IpConfig, Route};

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

impl From<Lease> for AddResult {
    fn from(lease: Lease) -> Self {
        AddResult { interfaces: Vec::new(), ips: lease.ips, routes: lease.routes, dns: lease.dns }
    }
}
