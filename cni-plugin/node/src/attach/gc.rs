//! GC: takes back what no valid attachment of the network owns: records, addresses, links and
//! rules.

use super::chain::{AddressSource, BRAID, Chain, Runner};
use super::del::collect;
use super::liveness::NodeState;
use super::orphans::{records, sweep, sweep_empty};
use super::recorded::host_locals;
use super::unrecorded::forget_unlisted;
use crate::apply::host::{Host, Machine};
use crate::ipam::liveness::{Liveness, Netns, owner_of};
use crate::ipam::{Kept, host_local};
use crate::store::holder::is_alive;
use crate::store::record::Record;
use crate::store::root::Root;
use braid_core::cni::{Command, Error, Owner, Request};
use braid_core::plan::Feature;
use std::collections::HashSet;
use std::time::UNIX_EPOCH;

/// Takes back everything of this network that the runtime does not list.
///
/// A call without a list tells nothing of what is valid. It takes back only what is surely dead:
/// whose namespace is gone, by braid's record or by libcni's cache, and leases of an earlier boot.
#[inline(never)]
pub fn gc(request: &Request, chain: &Chain, machine: &dyn Machine) -> Result<(), Error> {
    if chain.disable_gc() {
        return Ok(());
    }
    let records = records(machine)?;
    // A list inside the configuration may have a name of its own.
    let of_network = |of: &Owner| Owner::new(chain.network(), &of.container_id, &of.ifname);
    let listed = request
        .conf
        .valid_attachments
        .as_ref()
        .map(|all| all.iter().map(of_network).collect::<Vec<_>>());
    let (kept, lost) = split(records, chain.network(), &chain.face, listed.as_deref());
    let mut errors: Vec<Error> = lost
        .iter()
        .filter_map(|record| collect(record, machine).err())
        .collect();
    if let Some(listed) = &listed {
        errors.extend(forget_unlisted(
            chain.network(),
            &chain.face,
            listed,
            machine,
        ));
    }
    let mut owners = listed.clone().unwrap_or_default();
    owners.extend(kept.iter().flat_map(Record::owners));
    let valid = Valid {
        owners,
        containers: listed.map(|_| HashSet::new()),
    };
    errors.extend(collect_networks([chain], &valid, machine).err());
    errors.extend(sweep_empty(machine));
    Error::joined(&errors)
}

/// Owners of what GC keeps.
#[derive(Debug)]
pub struct Valid {
    /// Attachments of any network.
    pub owners: Vec<Owner>,
    /// Containers whose attachments are all kept; `None` if the call has no list: then only the
    /// surely dead go.
    pub containers: Option<HashSet<String>>,
}

impl Valid {
    /// True if the call has a list.
    fn is_list(&self) -> bool {
        self.containers.is_some()
    }

    fn has(&self, container_id: &str) -> bool {
        self.containers
            .as_ref()
            .is_some_and(|all| all.contains(container_id))
    }
}

/// The records that are kept, of all networks, and those of calls of this network and plugin that
/// are lost: not listed, or not alive where nothing is listed. A call of type `braid` may have
/// plugins of the network behind it that were called by their own names.
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

/// Takes back what nobody valid has of some networks: addresses, what foreign plugins made, links
/// and rules.
pub fn collect_networks<'c>(
    chains: impl IntoIterator<Item = &'c Chain>,
    valid: &Valid,
    machine: &dyn Machine,
) -> Result<(), Error> {
    let chains: Vec<&Chain> = chains
        .into_iter()
        .filter(|chain| !chain.disable_gc())
        .collect();
    if chains.is_empty() {
        return Ok(());
    }
    let mut host = machine.open(None).map_err(Error::from)?;
    mend(
        &chains
            .iter()
            .flat_map(|chain| chain.features())
            .collect::<Vec<_>>(),
        &mut *host,
    );
    let (mut errors, mut kept) = (Vec::new(), Vec::new());
    for chain in chains {
        let network = chain.network();
        let mut owners: Vec<Owner> = valid
            .owners
            .iter()
            .filter(|owner| owner.network == network)
            .cloned()
            .collect();
        if valid.is_list() {
            owners.extend(holders(chain, valid));
        }
        let listed = if valid.is_list() {
            Kept::Listed(&owners)
        } else {
            Kept::NotGone
        };
        errors.extend(collect_others(chain, listed, machine.root()));
        let texts: HashSet<String> = owners
            .iter()
            .flat_map(|owner| [owner.short(), owner.whole()])
            .collect();
        kept.push((NodeState::of(machine.root(), network), texts));
    }
    let is_lost = |text: &str| {
        let mut of = kept.iter().filter(|(known, kept)| {
            Owner::is_of_network(text, known.network()) && !kept.contains(text)
        });
        let owner = Owner::parse(text);
        if valid.is_list() {
            of.next().is_some() && !owner.is_some_and(|owner| valid.has(&owner.container_id))
        } else {
            // Whatever libcni says of this owner is right, however old.
            owner.is_some_and(|owner| {
                of.any(|(known, _)| known.netns_of(&owner, UNIX_EPOCH) == Netns::Gone)
            })
        }
    };
    errors.extend(sweep(&is_lost, &mut *host));
    Error::joined(&errors)
}

/// Has the IPAMs and the foreign plugins of a network take back what they gave others than those
/// kept; all errors. A foreign one without a list would take back all.
fn collect_others(chain: &Chain, kept: Kept<'_>, root: &Root) -> Vec<Error> {
    let mut errors = Vec::new();
    let tells_foreign = chain.knows_gc() && matches!(kept, Kept::Listed(_));
    for (at, item) in chain.items.iter().enumerate() {
        errors.extend(match &item.addresses {
            AddressSource::Ours(ipam) => ipam
                .gc(kept, NodeState::of(root, chain.network()).host())
                .err(),
            AddressSource::Foreign(ipam) if tells_foreign => {
                chain.delegate(ipam, at, Command::Gc, None, None).err()
            }
            AddressSource::Foreign(_) | AddressSource::NoIpam => None,
        });
        if matches!(item.work, Runner::Foreign) && tells_foreign {
            errors.extend(
                chain
                    .delegate(&item.conf.plugin, at, Command::Gc, None, None)
                    .err(),
            );
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

/// The owners of a valid container's leases, though perhaps no record is left.
fn holders(chain: &Chain, valid: &Valid) -> Vec<Owner> {
    let leases = host_locals(chain)
        .flat_map(|(_, config)| host_local::read_leases(&config.path()).unwrap_or_default());
    let owners = leases.filter_map(|lease| owner_of(&lease, chain.network()));
    owners
        .filter(|owner| valid.has(&owner.container_id))
        .collect()
}
