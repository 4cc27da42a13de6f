//! Ports of the host that lead to containers.

pub mod ebpf;
pub mod loopback;

use super::kernel::Kernel;
use super::record;
use crate::plan::hostport::{Entrance, HostPortFact, HostPorts, Protocol};
use crate::sys::conntrack;
use crate::sys::netlink::KernelError;
use crate::sys::nft::Spot;
use crate::sys::nft::hostport::{self, Shown};
use nix::errno::Errno;

/// Makes the ports lead to the container, for clients that have sent before as well.
pub(super) fn add(kernel: &mut Kernel, all: &HostPorts) -> Result<(), KernelError> {
    // First, so that no flow begins in nf_tables that eBPF would then lead through another entry of conntrack.
    if let Some(way) = all.way() {
        ebpf::add(kernel, all, way)?;
    }
    match hostport::add(kernel.nft()?, all) {
        Err(err) if err.errno == Errno::EEXIST => take_over(kernel, all)?,
        other => other?,
    }
    // Behind nf_tables, which decides who has a port.
    loopback::add(all)?;
    let socket = kernel.nft()?;
    let mut of_udp = all.ports.iter().map(|port| port.at).filter(|at| at.protocol == Protocol::Udp);
    of_udp.try_for_each(|at| conntrack::forget_udp(socket, at.addr, at.port))
}

/// Ends what eBPF has of them, and notes the elements of nf_tables that are still this owner's.
pub(super) fn give_up(kernel: &mut Kernel, all: &HostPorts, elements: &mut Vec<Spot>) -> Result<(), KernelError> {
    let by_ebpf = if all.way().is_some() { ebpf::del(kernel, all) } else { Ok(()) };
    let at_loopback = loopback::del(all);
    elements.extend(hostport::owned(kernel.nft()?, all)?);
    by_ebpf.and(at_loopback)
}

/// Ends all of an owner's.
pub(super) fn del_owner(kernel: &mut Kernel, owner: &str) -> Result<(), KernelError> {
    let by_ebpf = ebpf::del_owner(kernel, owner);
    let at_loopback = loopback::del_owner(owner);
    hostport::del_owner(kernel.nft()?, owner).and(by_ebpf).and(at_loopback)
}

/// All owners of a port.
pub fn owners(kernel: &mut Kernel) -> Result<Vec<String>, KernelError> {
    let mut owners = hostport::owners(kernel.nft()?)?;
    owners.extend(ebpf::owners()?);
    owners.extend(loopback::owners()?);
    owners.sort_unstable();
    owners.dedup();
    Ok(owners)
}

/// Makes them lead there where all that is in the way belongs to owners without record. Others who add see only what is
/// there, so one that takes away holds off all others that do.
fn take_over(kernel: &mut Kernel, all: &HostPorts) -> Result<(), KernelError> {
    const ROUNDS: usize = 8;
    let _held = record::lock_all()?;
    for _ in 0..ROUNDS {
        for port in &all.ports {
            if let Some(refusal) = observe(kernel, &port.at)?.and_then(|fact| fact.refusal(&port.at, &all.owner)) {
                return Err(KernelError { ext_ack: Some(refusal), ..Errno::EEXIST.into() });
            }
        }
        hostport::clear(kernel.nft()?, all)?;
        match hostport::add(kernel.nft()?, all) {
            // Somebody was faster: the next look shows who.
            Err(err) if err.errno == Errno::EEXIST => {}
            other => return other,
        }
    }
    Err(Errno::EEXIST.into())
}

/// Who has an entrance; none where nobody has.
pub(super) fn observe(kernel: &mut Kernel, at: &Entrance) -> Result<Option<HostPortFact>, KernelError> {
    let found = hostport::find(kernel.nft()?, at)?;
    Ok(found.map(|Shown { to, owner }| HostPortFact { to, is_held: record::is_known(&owner), owner }))
}
