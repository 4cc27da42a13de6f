//! Host ports at `[::1]`: elements of an eBPF map, and the programs that the first one brings and the last one takes away.
//! The owner of a port is decided by nf_tables before; here the last one to come has it.

use crate::Error;
pub(crate) mod programs;

use crate::apply::kernel::Kernel;
use crate::store::lock::Lock;
use crate::sys::netlink::KernelError;
use crate::sys::netns;
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::HostPorts;
use braid_core::plan::thing::host_ports::{Entrance, HostPort, HostPortFact, MOST_BY_EBPF};
use nix::errno::Errno;
use programs::{Ports, Shown, are_attached, is_started, start, stop};

/// Makes the ports lead to the container.
pub(super) fn add(all: &HostPorts) -> Result<(), KernelError> {
    if all.at_loopback().next().is_none() {
        return Ok(());
    }
    let _held = Lock::Ebpf.hold_for_step()?;
    set(all).map_err(said)
}

fn set(all: &HostPorts) -> Result<(), Errno> {
    let ports = match Ports::pinned()? {
        Some(ports) if is_started()? => ports,
        _ => start()?,
    };
    let netns = netns::cookie()?;
    all.at_loopback().try_for_each(|HostPort { at, to }| ports.set(at, *to, netns, &all.owner))
}

/// Ends those that are still this owner's.
pub(super) fn del(all: &HostPorts) -> Result<(), KernelError> {
    if all.at_loopback().next().is_none() {
        return Ok(());
    }
    let _held = Lock::Ebpf.hold_for_step()?;
    end(|ports| all.at_loopback().try_for_each(|port| ports.del(&port.at, &all.owner))).map_err(said)
}

/// Ends all of an owner's.
pub(super) fn del_owner(owner: &str) -> Result<(), KernelError> {
    if Ports::pinned().map_err(said)?.is_none() {
        return Ok(());
    }
    let _held = Lock::Ebpf.hold_for_step()?;
    end(|ports| ports.del_owner(owner)).map_err(said)
}

/// Takes something away, and all that the node has for it with the last port.
fn end(work: impl FnOnce(&Ports) -> Result<(), Errno>) -> Result<(), Errno> {
    if let Some(ports) = Ports::pinned()? {
        work(&ports)?;
        if !ports.are_empty()? {
            return Ok(());
        }
    }
    stop()
}

/// Owner and target of a port; none where nobody has it.
fn observe(kernel: &mut Kernel, at: &Entrance) -> Result<Option<HostPortFact>, KernelError> {
    let ports = Ports::pinned().map_err(said)?;
    let found = ports.map(|ports| ports.find(at)).transpose().map_err(said)?.flatten();
    let fact = |Shown { to, owner }| HostPortFact { to: Some(to), holder: kernel.holder(&owner), owner };
    Ok(found.map(fact))
}

/// The owner of each port.
pub(super) fn owners() -> Result<Vec<String>, KernelError> {
    let ports = Ports::pinned().map_err(said)?;
    Ok(ports.map(|ports| ports.owners()).transpose().map_err(said)?.unwrap_or_default())
}

/// Nothing else of the step is about eBPF at the root of cgroup2.
fn said(errno: Errno) -> KernelError {
    let why = match errno {
        Errno::E2BIG => format!("it leads {MOST_BY_EBPF} host ports from there already, which is the most"),
        errno => errno.desc().to_owned(),
    };
    KernelError { ext_ack: Some(format!("at [::1], by eBPF: {why}")), ..errno.into() }
}

#[cold]
pub(crate) fn read(kernel: &mut Kernel, at: &Entrance, facts: &mut Facts) -> Result<(), Error> {
    let found =
        observe(kernel, at).map_err(|cause| Error::new(format!("look who has host port {at} at ::1"), cause))?;
    facts.loopback_ports.extend(found.map(|fact| (*at, fact)));
    Ok(())
}

#[cold]
pub(crate) fn read_programs(facts: &mut Facts) -> Result<(), Error> {
    facts.has_loopback_programs = are_attached()
        .map_err(said)
        .map_err(|cause| Error::new("look for the programs at the root of cgroup2", cause))?;
    Ok(())
}
