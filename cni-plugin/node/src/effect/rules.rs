//! Deletion of policy routing rules that no record lists, found by their link or addresses.

use super::{Effect, addr, link, rule};
use crate::Cause;
use crate::kernel::Kernel;
use braid_core::name::Ns;
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::rule::Packets;
use braid_core::plan::thing::{LinkRef, Rule, Verb};
use ipnet::IpNet;
use nix::errno::Errno;
use std::net::IpAddr;

/// Deletes the rules for packets from or to one of `addrs` or an address of the link at `at`, and
/// the rules for packets that come in through that link. With `table`, deletes only rules for this
/// table. If the link is already deleted, its addresses are unknown.
pub(super) fn del(
    kernel: &mut Kernel,
    at: &LinkRef,
    addrs: &[IpAddr],
    table: Option<u32>,
) -> Result<(), Cause> {
    if at.ns == Ns::Pod && !kernel.has_pod() {
        return Ok(());
    }
    let mut facts = Facts::default();
    link::read(kernel, at, &mut facts)?;
    addr::read(kernel, at, &mut facts)?;
    rule::read(kernel, at.ns, &mut facts)?;
    let mut all = addrs.to_vec();
    for addr in facts.addrs(at) {
        all.push(addr.net.addr());
    }
    for rule in facts.rules.remove(&at.ns).unwrap_or_default() {
        let is_its = rule.iif.as_ref() == Some(&at.name) || is_about(&rule, &all);
        if table.is_none_or(|table| table == rule.table) && is_its {
            del_one(kernel, &rule)?;
        }
    }
    Ok(())
}

fn is_about(rule: &Rule, addrs: &[IpAddr]) -> bool {
    let (Packets::From(net) | Packets::To(net)) = rule.of;
    addrs.iter().any(|addr| IpNet::from(*addr) == net)
}

fn del_one(kernel: &mut Kernel, rule: &Rule) -> Result<(), Cause> {
    let mut body = Vec::new();
    let Some((kind, flags)) = rule.request(Verb::Del, 0, &mut body) else {
        return Ok(());
    };
    match kernel
        .route(rule.ns)?
        .call(kind, flags, |out| out.extend(body))
    {
        Err(err) if err.errno != Errno::ENOENT => Err(err.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}
