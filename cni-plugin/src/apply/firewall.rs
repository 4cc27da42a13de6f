//! What the host forwards for containers: kernel, records and the chains of others together.

use super::kernel::Kernel;
use super::record;
use crate::plan::nft::Firewall;
use crate::sys::netlink::KernelError;
use crate::sys::nft::{firewall, gate, isolation};

/// Has the host forward for the container; what others would drop first.
pub(super) fn add(kernel: &mut Kernel, what: &Firewall) -> Result<(), KernelError> {
    let socket = kernel.nft()?;
    if what.isolation.is_some() || !gate::shut(socket, what)?.is_empty() {
        let _held = record::lock_all()?;
        return add_held(kernel, what);
    }
    firewall::add(socket, what)
}

/// The same where this call holds off all others that do.
pub(super) fn add_held(kernel: &mut Kernel, what: &Firewall) -> Result<(), KernelError> {
    let socket = kernel.nft()?;
    gate::open(socket, what)?;
    isolation::add(socket, what)?;
    firewall::add(socket, what)
}

/// Ends it.
pub(super) fn del(kernel: &mut Kernel, what: &Firewall) -> Result<(), KernelError> {
    let socket = kernel.nft()?;
    firewall::del(socket, what)?;
    if what.isolation.is_some() {
        let _held = record::lock_all()?;
        isolation::del(socket, what)?;
    }
    Ok(())
}

/// Ends all of an owner's.
pub(super) fn del_owner(kernel: &mut Kernel, owner: &str) -> Result<(), KernelError> {
    let socket = kernel.nft()?;
    firewall::del_owner(socket, owner)?;
    let _held = record::lock_all()?;
    isolation::del_owner(socket, owner)
}

/// What is missing, each as a sentence.
pub(super) fn missing(kernel: &mut Kernel, what: &Firewall) -> Result<Vec<String>, KernelError> {
    let socket = kernel.nft()?;
    let mut missing = Vec::new();
    for addr in &what.addrs {
        if firewall::owner(socket, *addr)?.is_none() {
            missing.push(format!("{addr} is not let through"));
        }
    }
    missing.extend(gate::shut(socket, what)?);
    missing.extend(isolation::missing(socket, what)?);
    Ok(missing)
}
