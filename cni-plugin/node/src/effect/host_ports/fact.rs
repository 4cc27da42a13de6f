//! Fact of a host port: its target, its owner, and the container that the owner belongs to.

use crate::kernel::Kernel;
use braid_core::plan::thing::host_ports::HostPortFact;
use std::net::SocketAddr;

/// Builds the fact of a host port from its target and its owner.
pub(super) fn fact(kernel: &mut Kernel, to: Option<SocketAddr>, owner: String) -> HostPortFact {
    HostPortFact {
        to,
        holder: kernel.holder(&owner),
        owner,
    }
}
