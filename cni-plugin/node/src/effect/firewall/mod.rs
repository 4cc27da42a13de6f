//! Forwarding for containers: nf_tables, iptables and firewalld.

pub mod addrs;
pub mod forward_accept;
pub mod isolation;
mod legacy;

use super::claim::{Claim, claim};
use super::host_ports::ebpf;
use super::reference;
use super::tables::{self, Table, TableState};
use super::{Effect, Transport};
use crate::kernel::Kernel;
use crate::store::lock::Lock;
use crate::sys::firewalld;
use crate::sys::nft::{ElementKey, del_all};
use crate::{Cause, Context, Error};
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::firewall::Gate;
use braid_core::plan::thing::{Firewall, Verb};
use std::net::IpAddr;

impl Effect for Firewall {
    fn table(&self) -> Option<Table> {
        Some(Table::Inet)
    }

    fn is_lost(&self, kernel: &mut Kernel) -> Result<bool, Cause> {
        Ok(!missing(kernel, self)?.is_empty())
    }

    fn transport(&self, verb: Verb) -> Transport<'_> {
        let is_only_elements = self.isolation.is_none() && matches!(self.gate, Gate::Chains { .. });
        if is_only_elements {
            verb.word(Transport::Alone, Transport::Elements)
        } else {
            Transport::Alone
        }
    }

    fn add(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        claim(kernel, self)
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        del(kernel, self)
    }

    fn elements(&self, kernel: &mut Kernel, all: &mut Vec<ElementKey>) -> Result<(), Cause> {
        all.extend(addrs::owned(kernel.nft()?, self)?);
        Ok(())
    }

    fn is_several(&self) -> bool {
        true
    }
}

impl Claim for Firewall {
    fn claim(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        add(kernel, self)
    }

    fn claimant(&self) -> &str {
        &self.owner
    }

    fn holders(&self, kernel: &mut Kernel) -> Result<Vec<String>, Cause> {
        let socket = kernel.nft()?;
        let mut owners = Vec::new();
        for addr in &self.addrs {
            owners.extend(addrs::owner(socket, *addr)?);
        }
        Ok(owners)
    }

    fn clear(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        let socket = kernel.nft()?;
        for addr in &self.addrs {
            addrs::del_addr(socket, *addr)?;
        }
        Ok(())
    }
}

/// Lets the host forward packets of the container, also through chains of other programs.
pub(super) fn add(kernel: &mut Kernel, what: &Firewall) -> Result<(), Cause> {
    let is_shut = !shut(kernel, what)?.is_empty();
    let _held = (is_shut || what.isolation.is_some())
        .then(|| Lock::Rules.hold())
        .transpose()?;
    let socket = kernel.nft()?;
    isolation::add(socket, what)?;
    if what.is_within() {
        // Bridge neighbours would bypass all rules at the forward hook.
        ebpf::keep_apart(&what.owner)?;
    }
    // This precedes firewalld, since only these elements record the owner of an address.
    addrs::add(socket, what)?;
    match &what.gate {
        Gate::Chains { admin } if is_shut => {
            forward_accept::open(socket, &what.addrs, admin)?;
            legacy::open(&what.legacy)
        }
        Gate::Chains { .. } => Ok(()),
        Gate::Firewalld { zone } => {
            for addr in &what.addrs {
                firewalld::add_source(zone, *addr)?;
            }
            Ok(())
        }
    }
}

/// Lists the chains that would drop packets of the addresses, each as a sentence.
fn shut(kernel: &mut Kernel, what: &Firewall) -> Result<Vec<String>, Cause> {
    match &what.gate {
        Gate::Chains { admin } => {
            let mut shut = forward_accept::shut(kernel.nft()?, &what.addrs, admin)?;
            shut.extend(legacy::shut(&what.legacy)?);
            Ok(shut)
        }
        Gate::Firewalld { .. } => Ok(Vec::new()),
    }
}

/// Deletes the objects that let the host forward packets of the container.
pub(super) fn del(kernel: &mut Kernel, what: &Firewall) -> Result<(), Cause> {
    let socket = kernel.nft()?;
    if let Gate::Firewalld { zone } = &what.gate {
        for addr in &what.addrs {
            if addrs::is_of(socket, *addr, &what.owner)? {
                firewalld::remove_source(zone, *addr)?;
            }
        }
    }
    let own = addrs::owned(socket, what)?;
    del_all(socket, &own)?;
    if what.isolation.is_some() {
        let _held = Lock::Rules.hold()?;
        isolation::del(socket, what)?;
    }
    Ok(())
}

/// Deletes the objects that let the host forward packets of an owner.
pub(super) fn del_owner(kernel: &mut Kernel, owner: &str) -> Result<(), Cause> {
    let socket = kernel.nft()?;
    addrs::del_owner(socket, owner)?;
    let _held = Lock::Rules.hold()?;
    Ok(isolation::del_owner(socket, owner)?)
}

/// Deletes the rules and firewalld sources of a reference plugin for the addresses. Keeps sources
/// of addresses that now belong to a container of braid.
pub(super) fn del_reference(
    kernel: &mut Kernel,
    addrs: &[IpAddr],
    zone: &str,
) -> Result<(), Cause> {
    let socket = kernel.nft()?;
    reference::del_forwarding(socket, addrs)?;
    for addr in addrs {
        if addrs::owner(socket, *addr)?.is_none() {
            firewalld::remove_source(zone, *addr)?;
        }
    }
    Ok(())
}

/// Lists the missing parts of the container's forwarding, each as a sentence.
pub(crate) fn missing(kernel: &mut Kernel, what: &Firewall) -> Result<Vec<String>, Cause> {
    let mut missing = shut(kernel, what)?;
    let socket = kernel.nft()?;
    if tables::look(socket, Table::Inet)? == TableState::Broken {
        missing.push("rules of inet braid are missing".to_owned());
    }
    for addr in &what.addrs {
        match addrs::owner(socket, *addr)? {
            None => missing.push(format!("{addr} is not accepted")),
            Some(owner) if owner != what.owner => {
                missing.push(format!("{addr} belongs to {owner}"));
            }
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

#[cold]
pub(crate) fn read(kernel: &mut Kernel, what: &Firewall, facts: &mut Facts) -> Result<(), Error> {
    let missing = missing(kernel, what).doing("read the forwarding rules")?;
    facts.firewalls.insert(what.clone(), missing);
    Ok(())
}

#[cold]
pub(crate) fn read_firewalld(facts: &mut Facts) -> Result<(), Error> {
    facts.has_firewalld = firewalld::is_there().doing("query firewalld")?;
    Ok(())
}
