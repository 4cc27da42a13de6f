//! Ports of the host that lead to containers.

use super::kernel::Kernel;
use super::record;
use crate::plan::hostport::{Entrance, HostPortFact, HostPorts, Protocol};
use crate::sys::conntrack;
use crate::sys::netlink::KernelError;
use crate::sys::nft::hostport::{self, Shown};

/// Makes the ports lead to the container, for clients that have sent before as well.
pub(super) fn add(kernel: &mut Kernel, all: &HostPorts) -> Result<(), KernelError> {
    let socket = kernel.nft()?;
    hostport::add(socket, all)?;
    let mut of_udp = all.ports.iter().map(|port| port.at).filter(|at| at.protocol == Protocol::Udp);
    of_udp.try_for_each(|at| conntrack::forget_udp(socket, at.addr, at.port))
}

/// Who has an entrance; none where nobody has.
pub(super) fn observe(kernel: &mut Kernel, at: &Entrance) -> Result<Option<HostPortFact>, KernelError> {
    let found = hostport::find(kernel.nft()?, at)?;
    Ok(found.map(|Shown { to, owner }| HostPortFact { to, is_held: record::is_known(&owner), owner }))
}
