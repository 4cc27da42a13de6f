//! CHECK: verifies that every recorded step still holds, and that the container matches the result.

use super::add::open_host;
use super::chain::{AddressSource, ForeignCall, Runner};
use super::invocation::{Invocation, Wanted};
use super::liveness::NodeState;
use super::{reconstruct, recorded};
use crate::apply::host::{Host, Machine};
use crate::log::Log;
use crate::store::record::{Attached, Record};
use crate::store::root::Root;
use braid_core::cni::{AddResult, Attachment, Command, Error};
use braid_core::name::{IfName, Mac, Ns};
use braid_core::plan::step::Step;
use braid_core::plan::thing::{LinkRef, Thing};
use braid_core::plan::{Facts, Need};
use braid_core::plugins::interface;

/// Runs CHECK: compares the node with the state after ADD. The error lists all differences.
#[inline(never)]
pub fn check(mut call: Invocation, machine: &dyn Machine) -> Result<(), Error> {
    let Wanted {
        attachment, chain, ..
    } = &call.wanted[0];
    if chain.disable_check() {
        return Ok(());
    }
    if chain.ipam_alone().is_some() {
        return check_others(&call.wanted[0], 0, (machine.root(), machine.log()));
    }
    let folder = machine
        .folder(&attachment.container_id)
        .map_err(Error::from)?;
    let record = folder.load(&call.key).map_err(Error::from)?;
    if let Some(record) = &record {
        let further = recorded::further(record, attachment).collect::<Result<Vec<_>, _>>()?;
        further
            .into_iter()
            .try_for_each(|wanted| call.push(wanted))?;
    }
    check_all(&call, record.as_ref(), machine)
}

/// Runs CHECK for all networks of a call. `record` has the steps of ADD; without a record, they are
/// reconstructed.
pub fn check_all(
    call: &Invocation,
    record: Option<&Record>,
    machine: &dyn Machine,
) -> Result<(), Error> {
    let mut host = open_host(call.first(), call.netns_override, machine)?;
    let mut errors = Vec::new();
    for (at, wanted) in call.wanted.iter().enumerate() {
        if wanted.chain.disable_check() {
            continue;
        }
        for item in 0..wanted.chain.items.len() {
            errors.extend(check_others(wanted, item, (host.root(), host.log())).err());
        }
        let attached = record.and_then(|record| record.attachments.get(at));
        errors.extend(check_natives(wanted, attached, &mut *host)?);
    }
    Error::joined(&errors)
}

/// Compares the host with the state that a network's native plugins made, and returns the
/// differences.
fn check_natives(
    wanted: &Wanted,
    attached: Option<&Attached>,
    host: &mut dyn Host,
) -> Result<Vec<Error>, Error> {
    let Wanted {
        attachment, chain, ..
    } = wanted;
    if !chain
        .items
        .iter()
        .any(|item| matches!(item.work, Runner::Native(_)))
    {
        return Ok(Vec::new());
    }
    let prev = chain.conf.prev_result.as_ref();
    if prev.is_none()
        && chain
            .items
            .iter()
            .any(|item| item.conf.plugin != "loopback")
    {
        return Err(Error::config("Required prevResult missing"));
    }
    let mut errors = Vec::new();
    let none = AddResult::default();
    let steps = match attached {
        Some(attached) => Ok(attached.steps().cloned().collect()),
        None => reconstruct::steps(wanted, prev.unwrap_or(&none), host),
    };
    let steps: Vec<Step> = steps.map_err(|err| errors.push(err)).unwrap_or_default();
    let facts = host
        .observe(&needs(&steps, attachment))
        .map_err(Error::from)?;
    if let Some(prev) = prev {
        errors.extend(check_result(wanted, prev, (&facts, attached.is_some())).err());
    }
    for (at, step) in steps.iter().enumerate() {
        if is_overwritten(step, &steps[at + 1..]) {
            continue;
        }
        if let Err(what) = step.holds(&facts) {
            let network = chain.network();
            errors.push(Error::internal(format!("network {network:?}: {what}")));
        }
    }
    Ok(errors)
}

/// Runs the part of CHECK for item `at` that an IPAM or another program does.
fn check_others(wanted: &Wanted, at: usize, (root, log): (&Root, &Log)) -> Result<(), Error> {
    let Wanted {
        attachment, chain, ..
    } = wanted;
    let (item, prev) = (&chain.items[at], chain.conf.prev_result.as_ref());
    let run = |plugin: &str| {
        let call = ForeignCall {
            plugin,
            item: at,
            command: Command::Check,
            attachment: Some(attachment),
            prev,
        };
        chain.delegate(&call, log).map(drop)
    };
    if matches!(item.work, Runner::Foreign) {
        return run(&item.conf.plugin);
    }
    match &item.addresses {
        AddressSource::NoIpam => Ok(()),
        AddressSource::Ours(ipam) => {
            let known = NodeState::of(root, chain.network(), log);
            ipam.check(&wanted.lease_owner(), prev, known.host_of(attachment))
        }
        AddressSource::Foreign(ipam) => run(ipam),
    }
}

fn needs(steps: &[Step], attachment: &Attachment) -> Vec<Need> {
    let own = LinkRef::pod(attachment.ifname.clone());
    let mut needs = Vec::new();
    for step in steps {
        needs.extend(step.needs());
    }
    needs.extend([Need::Addrs(own), Need::Routes(Ns::Pod)]);
    needs
}

/// True if one of the `later` steps of the attachment overwrites the value that `step` set.
pub(super) fn is_overwritten<'s>(step: &Step, later: impl IntoIterator<Item = &'s Step>) -> bool {
    later
        .into_iter()
        .any(|other| match (step.attr(), other.attr(), step, other) {
            (Some((at, to)), Some((other, new)), ..) => {
                at == other && std::mem::discriminant(to) == std::mem::discriminant(new)
            }
            (_, _, Step::Add(Thing::Sysctl(one)), Step::Add(Thing::Sysctl(other))) => {
                one.ns == other.ns && one.key == other.key
            }
            _ => false,
        })
}

/// Compares the container's interface, addresses and routes with the final result, which includes
/// changes by later plugins.
fn check_result(
    wanted: &Wanted,
    prev: &AddResult,
    (facts, is_recorded): (&Facts, bool),
) -> Result<(), Error> {
    let Wanted {
        attachment, chain, ..
    } = wanted;
    let mut kind = None;
    for item in &chain.items {
        if let Runner::Native(plugin) = &item.work {
            kind = plugin.kind().or(kind);
        }
    }
    // A plugin that creates no interface is checked by its recorded steps, if there is a record.
    let is_made = chain.makes_interface();
    if !is_made && is_recorded {
        return Ok(());
    }
    let name = attachment.ifname.as_str();
    let sandbox = wanted.sandbox();
    let own = prev
        .interfaces
        .iter()
        .find(|interface| interface.name == name && interface.sandbox == sandbox);
    if !is_made && own.is_none() {
        return Ok(());
    }
    let own = own.ok_or_else(|| {
        Error::config(format!(
            "Sandbox in prevResult doesn't match configured netns: {sandbox}, interface {name:?}"
        ))
    })?;
    let at = LinkRef::pod(attachment.ifname.clone());
    if is_made && kind.is_none() && own.mac.is_empty() && facts.link(&at).is_none() {
        // A user-space program drives the device and configures its addresses.
        return Ok(());
    }
    let fact = facts
        .link(&at)
        .ok_or_else(|| Error::internal(format!("link {at} does not exist")))?;
    if let Some(kind) = kind
        && fact.kind != kind
    {
        return Err(Error::internal(format!(
            "link {at} is of kind {:?}, not {kind}",
            fact.kind
        )));
    }
    if let (Some(expected), Some(found)) = (Mac::parse(&own.mac), fact.mac)
        && expected != found
    {
        return Err(Error::internal(format!(
            "link {at} has address {found}, not {expected}"
        )));
    }
    check_addresses(prev, &attachment.ifname, facts)?;
    check_routes(prev, facts)
}

fn check_addresses(prev: &AddResult, ifname: &IfName, facts: &Facts) -> Result<(), Error> {
    let at = LinkRef::pod(ifname.clone());
    let is_elsewhere = |index: usize| {
        prev.interfaces
            .get(index)
            .is_some_and(|other| other.name != ifname.as_str())
    };
    for ip in &prev.ips {
        if ip.interface.is_some_and(is_elsewhere) {
            continue;
        }
        if !facts.addrs(&at).iter().any(|fact| fact.net == ip.address) {
            return Err(Error::internal(format!(
                "address {} is missing on {at}",
                ip.address
            )));
        }
    }
    Ok(())
}

fn check_routes(prev: &AddResult, facts: &Facts) -> Result<(), Error> {
    let routes = facts.routes.get(&Ns::Pod).map_or(&[][..], Vec::as_slice);
    for route in &prev.routes {
        let there = routes.iter().any(|fact| {
            fact.dst.trunc() == route.dst.trunc()
                && interface::table(route).is_none_or(|table| fact.table == table)
                && (route.next_hop().is_none()
                    || route.dst.prefix_len() == 0
                    || fact.gw == route.next_hop())
        });
        if !there {
            return Err(Error::internal(format!(
                "route {} is missing in the container",
                route.dst
            )));
        }
    }
    Ok(())
}
