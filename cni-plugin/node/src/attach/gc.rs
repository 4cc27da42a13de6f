//! GC: takes back what no valid attachment of the network owns: records, addresses, links and rules.

use super::chain::{Chain, From, Work};
use super::del::{Leaving, detach};
use super::liveness::Known;
use super::recorded::host_locals;
use crate::apply::executor::OnError;
use crate::apply::host::{Host, Machine};
use crate::ipam::host_local;
use crate::ipam::liveness::{Liveness, Netns, owner_of};
use crate::store::holder::is_alive;
use crate::store::record::{Attached, Record};
use braid_core::cni::{Command, Error, Json, NetConf, Owner, Request};
use braid_core::plan::{Facts, Feature};
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
    let mut host = machine.open(None).map_err(Error::from)?;
    mend(&chain.features(), &mut *host);
    let (records, others): (Vec<Record>, Vec<Record>) =
        machine.records().map_err(Error::from)?.into_iter().partition(|record| record.key.owner.network == network);
    let mut valid = match &request.conf.valid_attachments {
        // A list inside the configuration may have a name of its own.
        Some(valid) => valid.iter().map(|of| Owner::new(network, &of.container_id, &of.ifname)).collect(),
        None => alive(chain, &records),
    };
    let is_valid = |record: &Record| valid.contains(&record.key.owner);
    let (kept, lost): (Vec<Record>, Vec<Record>) = records.into_iter().partition(is_valid);
    for record in lost.iter().filter(|record| record.key.plugin == chain.face) {
        errors.extend(collect(record, machine).err());
    }
    // Another call may have attached its container to this network: the runtime does not list that.
    valid.extend(kept.iter().chain(&others).flat_map(|record| of_network(record, network)));
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
    errors.extend(sweep(network, &valid, &mut *host));
    errors.extend(machine.sweep_empty().map_err(Error::from).err());
    Error::joined(&errors)
}

/// Puts back what was flushed, and opens what was shut; warns of what it could not.
pub fn mend(features: &[Feature], host: &mut dyn Host) {
    let mut errors = host.restore(features);
    errors.extend(host.open_gates(features));
    for err in errors {
        host.warn(&err.to_string());
    }
}

/// Owners of the attachments that a record has of a network.
fn of_network(record: &Record, network: &str) -> impl Iterator<Item = Owner> {
    record
        .attachments
        .iter()
        .filter(move |attached| attached.network == network)
        .map(|attached| record.owner_of(attached))
}

/// The attachments of the network whose namespace is known to be there.
fn alive(chain: &Chain, records: &[Record]) -> Vec<Owner> {
    let own = |record: &Record| record.key.owner.clone();
    let mut alive: Vec<_> = records.iter().filter(|record| is_alive(record)).map(own).collect();
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
    let call = || {
        let lost = || Error::internal("a record of no attachment");
        let first: &Attached = record.attachments.first().ok_or_else(lost)?;
        let conf = NetConf::from_json(Json::clone(&first.conf))?;
        let (key, path) = (record.key.clone(), record.path.clone());
        Ok(Leaving { key, attachment: record.interface_of(first), conf, path, netns_override: false })
    };
    call().and_then(|call| detach(&call, machine)).map_err(|err: Error| {
        err.context(format!("container {} {}", record.key.owner.container_id, record.key.owner.ifname))
    })
}

/// Takes away what the kernel shows of owners of this network which are not valid: their records are lost.
fn sweep(network: &str, valid: &[Owner], host: &mut dyn Host) -> Vec<Error> {
    let kept: HashSet<String> = valid.iter().flat_map(|owner| [owner.short(), owner.whole()]).collect();
    let is_lost = |text: &str| Owner::is_of_network(text, network) && !kept.contains(text);
    let steps = match host.owned(&is_lost) {
        Ok(steps) => steps,
        Err(err) => return vec![err.into()],
    };
    let report = host.execute(&steps, &Facts::default(), OnError::GoOn);
    report.errors.into_iter().chain(host.sweep().err()).map(Error::from).collect()
}
