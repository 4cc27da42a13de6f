//! GC: takes back what no valid attachment of the network owns: records, addresses, links and rules.

use super::chain::{Chain, From, Work};
use super::del::del;
use super::liveness::Known;
use super::recorded::{self, host_locals};
use crate::apply::effect::firewall::{addrs, isolation};
use crate::apply::effect::{host_ports, link, mac_check, masquerade, xsk_guard};
use crate::apply::holder::is_alive;
use crate::apply::host::Machine;
use crate::apply::kernel::Kernel;
use crate::apply::record::{self, Record};
use crate::apply::repair;
use crate::cni::{Command, Error, Owner, Request};
use crate::ipam::host_local;
use crate::ipam::liveness::{Liveness, Netns, owner_of};
use crate::plan::step::{Kind, Step};
use crate::plan::thing::{Link, LinkRef, MacCheck};
use crate::plan::{Facts, IfName, Mac};
use crate::plugins::call::ALIAS_PREFIX;
use std::collections::HashSet;

/// Takes back everything of this network that the runtime does not list.
///
/// Without a list nothing is known to be valid, as for libcni; then an attachment is kept whose namespace is still there,
/// by braid's record or by libcni's cache.
#[inline(never)]
pub fn gc(request: &Request, chain: &Chain, machine: &dyn Machine) -> Result<(), Error> {
    if chain.disable_gc() {
        return Ok(());
    }
    let network = chain.network();
    let mut errors = Vec::new();
    mend(chain)?;
    let records = record::list().map_err(Error::from)?;
    let records: Vec<Record> = records.into_iter().filter(|record| record.key.owner.network == network).collect();
    let valid = match &request.conf.valid_attachments {
        // A list inside the configuration may have a name of its own.
        Some(valid) => valid.iter().map(|of| Owner::new(network, &of.container_id, &of.ifname)).collect(),
        None => alive(chain, &records),
    };
    let is_lost = |record: &&Record| record.key.plugin == chain.face && !valid.contains(&record.key.owner);
    for record in records.iter().filter(is_lost) {
        errors.extend(collect(record, machine).err());
    }
    for (at, item) in chain.items.iter().enumerate() {
        errors.extend(match &item.addresses {
            From::Ours(ipam) => ipam.gc(&valid, Known::of(network).host()).err(),
            From::Foreign(ipam) => chain.delegate(ipam, at, Command::Gc, None, None).err(),
            From::Nobody => None,
        });
        if matches!(item.work, Work::Foreign) {
            errors.extend(chain.delegate(&item.conf.plugin, at, Command::Gc, None, None).err());
        }
    }
    errors.extend(sweep(network, &valid).err());
    errors.extend(record::sweep_empty().map_err(Error::from).err());
    Error::joined(&errors)
}

/// Puts back what was flushed, and opens what was shut; says on standard error what it could not.
pub fn mend(chain: &Chain) -> Result<(), Error> {
    let mut kernel = Kernel::open(None).map_err(Error::from)?;
    let features = chain.features();
    let mut errors = repair::rules(&mut kernel, &features, is_alive);
    errors.extend(repair::gates(&mut kernel, &features));
    for err in errors {
        crate::sys::stderr::tell!("{err}");
    }
    Ok(())
}

/// The attachments of the network whose namespace is known to be there.
fn alive(chain: &Chain, records: &[Record]) -> Vec<Owner> {
    let mut alive: Vec<_> =
        records.iter().filter(|record| is_alive(record)).map(|record| record.key.owner.clone()).collect();
    let known = Known::of(chain.network());
    for (_, config) in host_locals(chain) {
        for lease in host_local::read_leases(&config.path()).unwrap_or_default() {
            let Some(owner) = owner_of(&lease, chain.network()) else { continue };
            if known.netns_of(&owner, lease.written) == Netns::Alive {
                alive.push(owner);
            }
        }
    }
    alive
}

/// DEL with what the record remembers of the call.
pub fn collect(record: &Record, machine: &dyn Machine) -> Result<(), Error> {
    del(&recorded::request(record)?, &record.key.plugin, machine)
        .map_err(|err| err.context(format!("container {} {}", record.key.owner.container_id, record.key.owner.ifname)))
}

/// Links, masqueraded sources, host ports and held bridge ports that name an owner of this network which is not valid: their
/// records are lost.
fn sweep(network: &str, valid: &[Owner]) -> Result<(), Error> {
    let kept: HashSet<String> = valid.iter().flat_map(|owner| [owner.short(), owner.whole()]).collect();
    let is_lost = |text: &str| Owner::is_of_network(text, network) && !kept.contains(text);
    let mut kernel = Kernel::open(None).map_err(Error::from)?;
    let links = kernel.route(crate::plan::Ns::Host).and_then(link::list);
    let mut steps = Vec::new();
    for (name, fact) in links.map_err(Error::from)? {
        let Ok(name) = IfName::parse(&name) else { continue };
        if fact.alias.strip_prefix(ALIAS_PREFIX).is_some_and(is_lost) {
            steps.push(Step::del(Link::any(LinkRef::host(name))));
        }
    }
    let masqueraded = kernel.nft().and_then(masquerade::list).unwrap_or_default();
    let lost = masqueraded.into_iter().map(|(_, owner)| owner).filter(|owner| is_lost(owner));
    steps.extend(lost.map(|owner| Step::Forget(Kind::Masquerades, owner)));
    let led = host_ports::owners(&mut kernel).unwrap_or_default();
    steps.extend(led.into_iter().filter(|owner| is_lost(owner)).map(|owner| Step::Forget(Kind::HostPorts, owner)));
    let mut forwarded = kernel.nft().and_then(addrs::owners).unwrap_or_default();
    forwarded.extend(kernel.nft().and_then(isolation::owners).unwrap_or_default());
    steps.extend(forwarded.into_iter().filter(|owner| is_lost(owner)).map(|owner| Step::Forget(Kind::Firewall, owner)));
    let limited = xsk_guard::owners().unwrap_or_default();
    steps.extend(limited.into_iter().filter(|owner| is_lost(owner)).map(|owner| Step::Forget(Kind::XskGuards, owner)));
    let held = kernel.nft().and_then(mac_check::owners).unwrap_or_default();
    let lost = held.into_iter().filter(|(_, owner)| is_lost(owner));
    steps.extend(lost.map(|(port, owner)| Step::del(MacCheck { port, mac: Mac([0; 6]), owner })));
    let go_on = crate::apply::executor::OnError::GoOn;
    let report = crate::apply::executor::execute(&mut kernel, &steps, &Facts::default(), go_on);
    let idle = xsk_guard::sweep().err().map(Error::from);
    Error::joined(&report.errors.into_iter().map(Error::from).chain(idle).collect::<Vec<_>>())
}
