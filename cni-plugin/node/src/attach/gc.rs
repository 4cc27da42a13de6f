//! GC: deletes the records, addresses, links and rules of a network that belong to no valid
//! attachment.

use super::chain::{AddressSource, BRAID, Chain, ForeignCall, Runner};
use super::del::collect_all;
use super::liveness::NodeState;
use super::orphans::{records, sweep, sweep_empty};
use super::recorded::host_locals;
use super::unrecorded::{Calls, forget_unlisted};
use crate::apply::host::{Host, Machine};
use crate::ipam::liveness::{Liveness, Netns, owner_of};
use crate::ipam::{Kept, host_local};
use crate::store::holder::is_alive;
use crate::store::record::Record;
use braid_core::cni::{Command, Error, Owner, Request};
use braid_core::plan::Feature;
use std::collections::HashSet;
use std::time::UNIX_EPOCH;

/// Deletes everything in this network that belongs to no attachment in the runtime's list.
///
/// A call without a list does not say which attachments are valid. Then GC deletes only attachments
/// that are certainly gone: their namespace does not exist, by braid's record or libcni's cache, or
/// their lease is from an earlier boot.
#[inline(never)]
pub fn gc(request: &Request, chain: &Chain, machine: &dyn Machine) -> Result<(), Error> {
    if chain.disable_gc() {
        return Ok(());
    }
    let records = records(machine)?;
    // A plugin list inside the configuration may have its own network name.
    let of_network = |of: &Owner| Owner::new(chain.network(), &of.container_id, &of.ifname);
    let valid = request.conf.valid_attachments.as_ref();
    let listed: Option<Vec<Owner>> = valid.map(|all| all.iter().map(of_network).collect());
    let (kept, lost) = split(
        records,
        chain.network(),
        &chain.plugin_name,
        listed.as_deref(),
    );
    let mut errors = collect_all(&lost, machine);
    if let Some(listed) = &listed {
        let calls = Calls {
            network: chain.network(),
            plugin: &chain.plugin_name,
            are_of_pods: false,
        };
        errors.extend(forget_unlisted(calls, listed, machine));
    }
    let mut owners = listed.clone().unwrap_or_default();
    for record in &kept {
        owners.extend(record.owners());
    }
    let valid = Valid {
        owners,
        containers: listed.map(|_| HashSet::new()),
    };
    errors.extend(collect_networks([chain], &valid, machine).err());
    errors.extend(sweep_empty(machine));
    Error::joined(&errors)
}

/// Owners and containers that GC keeps.
#[derive(Debug)]
pub struct Valid {
    /// Owners of valid attachments in any network.
    pub owners: Vec<Owner>,
    /// Containers whose attachments are all kept. `None` if the call has no list: then GC deletes
    /// only the state of terminated containers.
    pub containers: Option<HashSet<String>>,
}

impl Valid {
    /// True if the runtime passed a list of valid attachments.
    fn is_list(&self) -> bool {
        self.containers.is_some()
    }

    fn has(&self, container_id: &str) -> bool {
        self.containers
            .as_ref()
            .is_some_and(|all| all.contains(container_id))
    }
}

/// Splits the records into the records to keep and the records to delete. With a list, a record is
/// deleted if its owner is not in `listed`. Without a list, a record is deleted if its container is
/// terminated. Records of other networks and plugin types are kept. The plugin type `braid` covers
/// all plugin types of the network.
pub fn split(
    records: Vec<Record>,
    network: &str,
    plugin: &str,
    listed: Option<&[Owner]>,
) -> (Vec<Record>, Vec<Record>) {
    let is_of = |record: &Record| {
        record.key.owner.network == network && (plugin == BRAID || record.key.plugin == plugin)
    };
    let is_valid = |record: &Record| {
        listed.map_or_else(|| is_alive(record), |all| all.contains(&record.key.owner))
    };
    records
        .into_iter()
        .partition(|record| !is_of(record) || is_valid(record))
}

/// Deletes everything in the networks of `chains` that has no valid owner: addresses, state of
/// foreign plugins, links and rules.
pub fn collect_networks<'c>(
    chains: impl IntoIterator<Item = &'c Chain>,
    valid: &Valid,
    machine: &dyn Machine,
) -> Result<(), Error> {
    let mut chains: Vec<&Chain> = chains.into_iter().collect();
    chains.retain(|chain| !chain.disable_gc());
    if chains.is_empty() {
        return Ok(());
    }
    let mut host = machine.open(None).map_err(Error::from)?;
    let mut features = Vec::new();
    for chain in &chains {
        features.extend(chain.features());
    }
    mend(&features, &mut *host);
    let (mut errors, mut kept) = (Vec::new(), Vec::new());
    for chain in chains {
        let network = chain.network();
        let mut owners = Vec::new();
        for owner in &valid.owners {
            if owner.network == network {
                owners.push(owner.clone());
            }
        }
        let listed = if valid.is_list() {
            match holders(chain, valid) {
                Ok(holders) => owners.extend(holders),
                // Without them, addresses of live containers would be freed.
                Err(err) => {
                    errors.push(err);
                    continue;
                }
            }
            Kept::Listed(&owners)
        } else {
            Kept::NotGone
        };
        errors.extend(collect_others(chain, listed, &mut *host));
        let mut texts = HashSet::new();
        for owner in &owners {
            texts.extend([owner.short(), owner.whole()]);
        }
        kept.push((NodeState::of(machine.root(), network, machine.log()), texts));
    }
    let is_lost = |text: &str| {
        let mut networks = kept.iter().filter(|(known, kept)| {
            Owner::is_of_network(text, known.network()) && !kept.contains(text)
        });
        let owner = Owner::parse(text);
        if valid.is_list() {
            networks.next().is_some() && !owner.is_some_and(|owner| valid.has(&owner.container_id))
        } else {
            // `UNIX_EPOCH`: the entry of this owner in libcni's cache counts, however old it is.
            owner.is_some_and(|owner| {
                networks.any(|(known, _)| known.netns_of(&owner, UNIX_EPOCH) == Netns::Gone)
            })
        }
    };
    errors.extend(sweep(&is_lost, &mut *host));
    Error::joined(&errors)
}

/// Runs GC of a network's IPAMs and foreign plugins. They release everything except for the state
/// of the owners in `kept`. A foreign plugin is called only if the runtime passed a list: without a
/// list it would release everything. Returns all errors.
fn collect_others(chain: &Chain, kept: Kept<'_>, host: &mut dyn Host) -> Vec<Error> {
    let mut errors = Vec::new();
    let tells_foreign = chain.knows_gc() && matches!(kept, Kept::Listed(_));
    for (at, item) in chain.items.iter().enumerate() {
        errors.extend(match &item.addresses {
            AddressSource::Ours(ipam) => {
                let node = NodeState::of(host.root(), chain.network(), host.log());
                let failed = ipam.gc(kept, node.host()).err();
                node.take_reclaimed().end(host);
                failed
            }
            AddressSource::Foreign(ipam) if tells_foreign => {
                let call = ForeignCall::of_network(ipam, at, Command::Gc);
                chain.delegate(&call, host.log()).err()
            }
            AddressSource::Foreign(_) | AddressSource::NoIpam => None,
        });
        if matches!(item.work, Runner::Foreign) && tells_foreign {
            let call = ForeignCall::of_network(&item.conf.plugin, at, Command::Gc);
            errors.extend(chain.delegate(&call, host.log()).err());
        }
    }
    errors
}

/// Restores flushed rules. Also accepts forwarded packets of attachments again, if other rules drop
/// them. Failures are only logged.
pub fn mend(features: &[Feature], host: &mut dyn Host) {
    let mut errors = host.restore(features);
    errors.extend(host.open_gates(features));
    for err in errors {
        host.log().warn(&err);
    }
}

/// Returns the owners of all leases and cluster-wide addresses that belong to valid containers, with or
/// without a record.
fn holders(chain: &Chain, valid: &Valid) -> Result<Vec<Owner>, Error> {
    let mut holders = Vec::new();
    for (_, config) in host_locals(chain) {
        for lease in host_local::read_leases(&config.path()).unwrap_or_default() {
            if let Some(owner) = owner_of(&lease, chain.network())
                && valid.has(&owner.container_id)
            {
                holders.push(owner);
            }
        }
    }
    for item in &chain.items {
        if let AddressSource::Ours(ipam) = &item.addresses {
            let mut owners = ipam.owners()?;
            owners
                .retain(|owner| owner.network == chain.network() && valid.has(&owner.container_id));
            holders.extend(owners);
        }
    }
    Ok(holders)
}
