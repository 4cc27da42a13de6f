//! GC: takes back what no valid attachment of the network owns: records, addresses, links and rules.

use super::chain::{BRAID, Chain, From, Work};
use super::del::{Leaving, detach};
use super::forget::forget_unlisted;
use super::liveness::Known;
use super::recorded::host_locals;
use crate::apply::executor::OnError;
use crate::apply::host::{Host, Machine};
use crate::ipam::host_local;
use crate::ipam::liveness::{Liveness, Netns, owner_of};
use crate::store::holder::is_alive;
use crate::store::record::{Attached, Record, foreign};
use crate::store::root::Root;
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
    let records = records(machine)?;
    // A list inside the configuration may have a name of its own.
    let of_network = |of: &Owner| Owner::new(chain.network(), &of.container_id, &of.ifname);
    let listed = request.conf.valid_attachments.as_ref().map(|all| all.iter().map(of_network).collect::<Vec<_>>());
    let (kept, lost) = split(records, chain.network(), &chain.face, listed.as_deref());
    let mut errors: Vec<Error> = lost.iter().filter_map(|record| collect(record, machine).err()).collect();
    if let Some(listed) = &listed {
        errors.extend(forget_unlisted(chain.network(), &chain.face, listed, machine));
    }
    let mut owners = listed.clone().unwrap_or_default();
    owners.extend(kept.iter().flat_map(Record::owners));
    let valid = Valid { owners, containers: listed.map(|_| HashSet::new()) };
    errors.extend(collect_networks([chain], &valid, machine).err());
    errors.extend(sweep_empty(machine));
    Error::joined(&errors)
}

/// All readable records, and the foreign records of the calls that have no other.
pub fn records(machine: &dyn Machine) -> Result<Vec<Record>, Error> {
    let mut records = machine.records().map_err(Error::from)?;
    let mut foreign = foreign::all(machine.root()).map_err(Error::from)?;
    foreign.retain(|second| records.iter().all(|record| record.key != second.key));
    records.append(&mut foreign);
    Ok(records)
}

/// Removes what calls that ended early left of folders and files of records; all errors.
pub fn sweep_empty(machine: &dyn Machine) -> Vec<Error> {
    [machine.sweep_empty(), foreign::sweep(machine.root())]
        .into_iter()
        .filter_map(Result::err)
        .map(Error::from)
        .collect()
}

/// Owners of what GC keeps.
#[derive(Debug)]
pub struct Valid {
    /// Attachments of any network.
    pub owners: Vec<Owner>,
    /// Containers all of whose attachments are kept; none where the runtime lists nothing, and all are whose namespace is there.
    pub containers: Option<HashSet<String>>,
}

impl Valid {
    fn has(&self, container_id: &str) -> bool {
        self.containers.as_ref().is_some_and(|all| all.contains(container_id))
    }
}

/// The records that are kept, of all networks, and those of calls of this network and plugin that are lost: not listed, or not
/// alive where nothing is listed. A call of type `braid` may have plugins of the network behind it that were called by their own
/// names.
pub fn split(
    records: Vec<Record>,
    network: &str,
    plugin: &str,
    listed: Option<&[Owner]>,
) -> (Vec<Record>, Vec<Record>) {
    let is_of =
        |record: &Record| record.key.owner.network == network && (plugin == BRAID || record.key.plugin == plugin);
    let is_valid = |record: &Record| listed.map_or_else(|| is_alive(record), |all| all.contains(&record.key.owner));
    records.into_iter().partition(|record| !is_of(record) || is_valid(record))
}

/// Takes back what nobody valid has of some networks: addresses, what foreign plugins made, links and rules.
pub fn collect_networks<'c>(
    chains: impl IntoIterator<Item = &'c Chain>,
    valid: &Valid,
    machine: &dyn Machine,
) -> Result<(), Error> {
    let chains: Vec<&Chain> = chains.into_iter().filter(|chain| !chain.disable_gc()).collect();
    if chains.is_empty() {
        return Ok(());
    }
    let mut host = machine.open(None).map_err(Error::from)?;
    mend(&chains.iter().flat_map(|chain| chain.features()).collect::<Vec<_>>(), &mut *host);
    let (mut errors, mut kept) = (Vec::new(), Vec::new());
    for chain in chains {
        let network = chain.network();
        let mut owners: Vec<Owner> = valid.owners.iter().filter(|owner| owner.network == network).cloned().collect();
        owners.extend(holders(chain, valid, machine.root()));
        errors.extend(collect_others(chain, &owners, machine.root()));
        kept.push((network, owners.iter().flat_map(|owner| [owner.short(), owner.whole()]).collect::<HashSet<_>>()));
    }
    let is_valid = |text: &str| Owner::parse(text).is_some_and(|owner| valid.has(&owner.container_id));
    let is_lost = |text: &str| {
        let mut lost =
            kept.iter().filter(|(network, kept)| Owner::is_of_network(text, network) && !kept.contains(text));
        lost.next().is_some() && !is_valid(text)
    };
    errors.extend(sweep(&is_lost, &mut *host));
    Error::joined(&errors)
}

/// Has the IPAMs and the foreign plugins of a network take back what they gave others than these owners; all errors.
fn collect_others(chain: &Chain, owners: &[Owner], root: &Root) -> Vec<Error> {
    let mut errors = Vec::new();
    for (at, item) in chain.items.iter().enumerate() {
        errors.extend(match &item.addresses {
            From::Ours(ipam) => ipam.gc(owners, Known::of(root, chain.network()).host()).err(),
            From::Foreign(ipam) if chain.knows_gc() => chain.delegate(ipam, at, Command::Gc, None, None).err(),
            From::Foreign(_) | From::Nobody => None,
        });
        if matches!(item.work, Work::Foreign) && chain.knows_gc() {
            errors.extend(chain.delegate(&item.conf.plugin, at, Command::Gc, None, None).err());
        }
    }
    errors
}

/// Puts back what was flushed, and opens what was shut; warns of what it could not.
pub fn mend(features: &[Feature], host: &mut dyn Host) {
    let mut errors = host.restore(features);
    errors.extend(host.open_gates(features));
    for err in errors {
        host.warn(&err.to_string());
    }
}

/// The owners of leases that are kept, though perhaps no record is left: of a valid container, or, where the runtime lists
/// nothing, of one whose namespace is known to be there.
fn holders(chain: &Chain, valid: &Valid, root: &Root) -> Vec<Owner> {
    let known = Known::of(root, chain.network());
    let mut holders = Vec::new();
    for (_, config) in host_locals(chain) {
        for lease in host_local::read_leases(&config.path()).unwrap_or_default() {
            let Some(owner) = owner_of(&lease, chain.network()) else { continue };
            let is_alive = || known.netns_of(&owner, lease.written) == Netns::Alive;
            if valid.has(&owner.container_id) || valid.containers.is_none() && is_alive() {
                holders.push(owner);
            }
        }
    }
    holders
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

/// Takes away what the kernel shows of owners whose text `is_lost`, of whom no record is left.
pub(super) fn sweep(is_lost: &dyn Fn(&str) -> bool, host: &mut dyn Host) -> Vec<Error> {
    let steps = match host.owned(is_lost) {
        Ok(steps) => steps,
        Err(err) => return vec![err.into()],
    };
    let report = host.execute(&steps, &Facts::default(), OnError::GoOn);
    report.errors.into_iter().chain(host.sweep().err()).map(Error::from).collect()
}
