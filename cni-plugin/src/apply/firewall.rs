//! What the host forwards for containers: kernel, records and who else drops together.

use super::kernel::Kernel;
use super::lock::Lock;
use super::{hostports, legacy};
use crate::plan::thing::Firewall;
use crate::plan::thing::firewall::Gate;
use crate::sys::firewalld;
use crate::sys::netlink::KernelError;
use crate::sys::nft::state::{self, State, Table};
use crate::sys::nft::{self, firewall, gate, isolation, reference};
use std::net::IpAddr;

/// Has the host forward for the container; what others would drop first.
pub(super) fn add(kernel: &mut Kernel, what: &Firewall) -> Result<(), KernelError> {
    let is_shut = !shut(kernel, what)?.is_empty();
    let _held = (is_shut || what.isolation.is_some()).then(|| Lock::Rules.hold_for_step()).transpose()?;
    let socket = kernel.nft()?;
    isolation::add(socket, what)?;
    if what.is_within() {
        // Past all rules about what is forwarded.
        hostports::ebpf::keep_apart(&what.owner)?;
    }
    // Before firewalld is told: whose an address is there is known from here alone.
    firewall::add(socket, what)?;
    match &what.gate {
        Gate::Chains { admin } if is_shut => {
            gate::open(socket, &what.addrs, admin)?;
            legacy::open(&what.legacy)
        }
        Gate::Chains { .. } => Ok(()),
        Gate::Firewalld { zone } => what.addrs.iter().try_for_each(|addr| firewalld::add_source(zone, *addr)),
    }
}

/// The chains that would drop the addresses' packets, each as a sentence.
fn shut(kernel: &mut Kernel, what: &Firewall) -> Result<Vec<String>, KernelError> {
    match &what.gate {
        Gate::Chains { admin } => {
            let mut shut = gate::shut(kernel.nft()?, &what.addrs, admin)?;
            shut.extend(legacy::shut(&what.legacy)?);
            Ok(shut)
        }
        Gate::Firewalld { .. } => Ok(Vec::new()),
    }
}

/// Ends it.
pub(super) fn del(kernel: &mut Kernel, what: &Firewall) -> Result<(), KernelError> {
    let socket = kernel.nft()?;
    if let Gate::Firewalld { zone } = &what.gate {
        for addr in &what.addrs {
            if firewall::is_of(socket, *addr, &what.owner)? {
                firewalld::remove_source(zone, *addr)?;
            }
        }
    }
    let own = firewall::owned(socket, what)?;
    nft::del_all(socket, &own)?;
    if what.isolation.is_some() {
        let _held = Lock::Rules.hold_for_step()?;
        isolation::del(socket, what)?;
    }
    Ok(())
}

/// Ends all of an owner's.
pub(super) fn del_owner(kernel: &mut Kernel, owner: &str) -> Result<(), KernelError> {
    let socket = kernel.nft()?;
    firewall::del_owner(socket, owner)?;
    let _held = Lock::Rules.hold_for_step()?;
    isolation::del_owner(socket, owner)
}

/// Ends what a reference plugin made for the addresses, where no container of braid's has them now.
pub(super) fn del_reference(kernel: &mut Kernel, addrs: &[IpAddr], zone: &str) -> Result<(), KernelError> {
    let socket = kernel.nft()?;
    reference::del_forwarding(socket, addrs)?;
    for addr in addrs {
        if firewall::owner(socket, *addr)?.is_none() {
            firewalld::remove_source(zone, *addr)?;
        }
    }
    Ok(())
}

/// What is missing, each as a sentence.
pub(super) fn missing(kernel: &mut Kernel, what: &Firewall) -> Result<Vec<String>, KernelError> {
    let mut missing = shut(kernel, what)?;
    let socket = kernel.nft()?;
    if state::look(socket, Table::Inet)? == State::Broken {
        missing.push("rules of inet braid are missing".to_owned());
    }
    for addr in &what.addrs {
        match firewall::owner(socket, *addr)? {
            None => missing.push(format!("{addr} is not let through")),
            Some(owner) if owner != what.owner => missing.push(format!("{addr} belongs to {owner}")),
            Some(_) => {}
        }
        if let Gate::Firewalld { zone } = &what.gate
            && !firewalld::has_source(zone, *addr)?
        {
            missing.push(format!("{addr} is not in firewalld's zone {zone}"));
        }
    }
    missing.extend(isolation::missing(socket, what)?);
    Ok(missing)
}
