//! The caller's view of the host for the IPAM verbs.

use super::liveness::Liveness;
use crate::log::Log;
use braid_core::cni::{Attachment, Error};
use braid_core::ipam::probe::Conflict;
use braid_core::ipam::whereabouts::api::Servers;
use std::net::IpAddr;
use std::path::Path;

/// The caller's view of the host for the IPAM verbs.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// Folder of the index, normally [`STATE_DIR`](super::host_local::STATE_DIR).
    pub state_dir: &'a Path,
    /// Source of information on whether the containers that own leases are alive.
    pub liveness: &'a dyn Liveness,
    /// Attachment of the container; `None` for a call without a container, such as GC.
    pub attachment: Option<&'a Attachment>,
    /// Other hosts on the container's new link; `None` without a link.
    pub prober: Option<&'a dyn Prober>,
    /// API servers of cluster-wide IPAM.
    pub servers: &'a dyn Servers,
    /// Log for messages to the operator.
    pub log: &'a Log,
}

/// Other hosts on a container's link.
pub trait Prober {
    /// Asks for the addresses, and returns those that other hosts have.
    fn probe(&self, addresses: &[IpAddr]) -> Result<Vec<Conflict>, Error>;
}

/// No API server, for tests of other IPAMs.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct NoServers;

#[cfg(test)]
impl Servers for NoServers {
    fn open(
        &self,
        kubeconfig: &Path,
        _limit: std::time::Duration,
    ) -> Box<dyn braid_core::ipam::whereabouts::api::Server> {
        panic!("{} is not asked", kubeconfig.display())
    }
}
