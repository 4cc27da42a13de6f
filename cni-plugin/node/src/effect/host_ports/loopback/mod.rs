//! Host ports at `[::1]`: elements of an eBPF map. The first port attaches the programs, and the
//! last port to be deleted detaches them. nf_tables has already decided who owns a port, so a later
//! write to this map replaces an earlier one.

pub(crate) mod programs;

use super::fact::fact;
use crate::kernel::Kernel;
use crate::store::lock::Lock;
use crate::sys::netns;
use crate::{Cause, Context, Error};
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::HostPorts;
use braid_core::plan::thing::host_ports::{HostEndpoint, HostPort, HostPortFact, MOST_BY_EBPF};
use nix::errno::Errno;
use programs::{LoopbackPort, Ports, are_attached, is_started, start, stop};

/// Redirects the host ports at `[::1]` to the container.
pub(super) fn add(all: &HostPorts) -> Result<(), Error> {
    if all.at_loopback().next().is_none() {
        return Ok(());
    }
    let _held = Lock::Ebpf.hold()?;
    set(all).map_err(said)
}

fn set(all: &HostPorts) -> Result<(), Errno> {
    let ports = match Ports::pinned()? {
        Some(ports) if is_started()? => ports,
        _ => start()?,
    };
    let netns = netns::cookie()?;
    all.at_loopback()
        .try_for_each(|HostPort { at, to }| ports.set(at, *to, netns, &all.owner))
}

/// Deletes the ports at `[::1]` in `all` that still belong to its owner.
pub(super) fn del(all: &HostPorts) -> Result<(), Error> {
    if all.at_loopback().next().is_none() {
        return Ok(());
    }
    let _held = Lock::Ebpf.hold()?;
    end(|ports| {
        all.at_loopback()
            .try_for_each(|port| ports.del(&port.at, &all.owner))
    })
    .map_err(said)
}

/// Deletes all ports of an owner at `[::1]`.
pub(super) fn del_owner(owner: &str) -> Result<(), Error> {
    if Ports::pinned().map_err(said)?.is_none() {
        return Ok(());
    }
    let _held = Lock::Ebpf.hold()?;
    end(|ports| ports.del_owner(owner)).map_err(said)
}

/// Calls `work` to delete ports. If no port is left, also deletes the programs and maps.
fn end(work: impl FnOnce(&Ports) -> Result<(), Errno>) -> Result<(), Errno> {
    if let Some(ports) = Ports::pinned()? {
        work(&ports)?;
        if !ports.are_empty()? {
            return Ok(());
        }
    }
    stop()
}

/// Returns target and owner of a port at `[::1]`; `None` if the port is free.
fn observe(kernel: &mut Kernel, at: &HostEndpoint) -> Result<Option<HostPortFact>, Errno> {
    let Some(ports) = Ports::pinned()? else {
        return Ok(None);
    };
    let Some(LoopbackPort { to, owner }) = ports.find(at)? else {
        return Ok(None);
    };
    Ok(Some(fact(kernel, Some(to), owner)))
}

/// Lists the owners of the ports at `[::1]`, one entry for each port.
pub(super) fn owners() -> Result<Vec<String>, Errno> {
    match Ports::pinned()? {
        Some(ports) => ports.owners(),
        None => Ok(Vec::new()),
    }
}

/// Converts the errno of a cgroup or eBPF call to an error of the step.
fn said(errno: Errno) -> Error {
    let full = || Cause::Refused(format!("all {MOST_BY_EBPF} host ports at [::1] are in use"));
    Error::new(
        "[::1] by eBPF",
        if errno == Errno::E2BIG {
            full()
        } else {
            errno.into()
        },
    )
}

#[cold]
pub(crate) fn read(kernel: &mut Kernel, at: &HostEndpoint, facts: &mut Facts) -> Result<(), Error> {
    let found = observe(kernel, at).doing(format_args!("look up host port {at} at ::1"))?;
    if let Some(fact) = found {
        facts.loopback_ports.insert(*at, fact);
    }
    Ok(())
}

#[cold]
pub(crate) fn read_programs(facts: &mut Facts) -> Result<(), Error> {
    facts.has_loopback_programs =
        are_attached().doing("query the programs at the root of cgroup2")?;
    Ok(())
}
