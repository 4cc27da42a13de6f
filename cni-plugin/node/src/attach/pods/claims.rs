//! IPAMClaims: takes a network's addresses from its claim, writes new addresses to the claim, and
//! releases the leases of deleted claims.

use super::refusal::of_source;
use crate::apply::host::Machine;
use crate::attach::chain::{AddressSource, Chain};
use crate::attach::invocation::Wanted;
use crate::attach::leases::network_of;
use crate::attach::liveness::NodeState;
use crate::attach::recorded::host_locals;
use crate::ipam::host_local::claimed;
use crate::ipam::whereabouts;
use crate::source::cluster::Cluster;
use crate::store::holder::is_alive;
use crate::store::record::Record;
use braid_core::cni::{AddResult, Error, Kind};
use braid_core::ipam::Claim;
use braid_core::k8s::ipam_claim::{self, addresses, filled, other_owner, owner, uid_of_owner};
use braid_core::k8s::network::Network;
use braid_core::k8s::settings::Settings;
use braid_core::k8s::source::{Source, SourceError};
use braid_core::k8s::{IpamClaim, ObjectName, Pod};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Returns the claim that a network refers to, if an IPAM of braid keeps its addresses. Foreign IPAMs
/// read claims themselves.
pub(super) fn reference<'n>(network: &'n Network, chain: &Chain) -> Option<&'n ObjectName> {
    network.ipam_claim.as_ref().filter(|_| keeps_claims(chain))
}

fn keeps_claims(chain: &Chain) -> bool {
    let mut addresses = chain.items.iter().map(|item| &item.addresses);
    addresses.any(|addresses| matches!(addresses, AddressSource::Ours(ipam) if ipam.keeps_claims()))
}

/// Converts an `IPAMClaim` object to a claim for the IPAM. Fails if another network of the pod, or
/// another container on this node, uses the claim: both would have the same addresses.
pub(super) fn of_network(
    claim: &IpamClaim,
    network: &Network,
    others: &[Wanted],
    (container_id, machine): (&str, &dyn Machine),
) -> Result<Claim, Error> {
    let wanted = Claim {
        owner: owner(claim)?,
        addresses: addresses(claim, network)?,
    };
    if others.iter().any(|other| {
        other
            .claim
            .as_ref()
            .is_some_and(|other| other.owner == wanted.owner)
    }) {
        return Err(Error::config(format!(
            "claim {}: two networks of the pod refer to it",
            claim.name
        )));
    }
    let uses = |record: &&Record| {
        let mut owners = record
            .attachments
            .iter()
            .filter_map(|attached| attached.claim.as_ref());
        record.key.owner.container_id != container_id
            && owners.any(|owner| *owner == wanted.owner)
            && is_alive(record)
    };
    let records = machine.records().map_err(Error::from)?;
    match records.iter().find(uses) {
        // The other container may be about to be deleted.
        Some(Record { key, .. }) => {
            let sentence = format!(
                "claim {}: container {} uses it",
                claim.name, key.owner.container_id
            );
            Err(Error::new(Kind::TryAgain, sentence))
        }
        None => Ok(wanted),
    }
}

/// Fails if another running pod, on any node, uses the claim.
pub(super) fn refuse_second(
    claim: &IpamClaim,
    pod: &Pod,
    source: &mut dyn Source,
) -> Result<(), Error> {
    let Some(owner) = other_owner(claim, pod) else {
        return Ok(());
    };
    let name = ObjectName {
        name: owner.to_owned(),
        ..pod.name.clone()
    };
    match source.pod(&name, None, &[]) {
        Ok((owner, _)) => ipam_claim::refuse_second(claim, &owner, pod),
        Err(SourceError::NotFound { .. }) => Ok(()),
        Err(err) => Err(of_source(&err)),
    }
}

/// Writes this pod to the claim as its owner. Also writes the result's addresses if the claim has
/// none. If this fails, the addresses must not be used, because on another node the claim would get
/// different addresses.
pub(super) fn fill(
    claim: &IpamClaim,
    result: &AddResult,
    pod: &Pod,
    source: &mut dyn Source,
) -> Result<(), Error> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let Some(filled) = filled(claim, result, pod, &now.to_string()) else {
        return Ok(());
    };
    source.fill_claim(&filled).map_err(|err| of_source(&err))
}

/// Releases the addresses that deleted claims hold in these networks. Returns true if any were
/// released. An ADD without a free address calls this, because the runtime may never call GC, and
/// DEL does not query the API.
#[cold]
pub(super) fn free_of(
    wanted: &[Wanted],
    settings: &Settings,
    machine: &dyn Machine,
    cluster: &dyn Cluster,
) -> Result<bool, Error> {
    let configs = wanted.iter().flat_map(|wanted| host_locals(&wanted.chain));
    free(
        &configs.map(|(_, config)| config.path()).collect(),
        settings,
        machine,
        cluster,
    )
}

/// Releases the addresses that deleted claims hold in these lease folders. Returns true if any were
/// released. Releases none if the API is not reachable.
pub(super) fn free(
    folders: &BTreeSet<PathBuf>,
    settings: &Settings,
    machine: &dyn Machine,
    cluster: &dyn Cluster,
) -> Result<bool, Error> {
    // Read before the list of claims: one that it lacks is a deleted claim.
    let in_pools = whereabouts::claims::uids()?;
    let mut held = Vec::new();
    for folder in folders {
        // GC of the folder's network reports an unreadable folder.
        let owners = claimed::owners(folder).unwrap_or_default();
        held.extend((!owners.is_empty()).then_some((folder, owners)));
    }
    if (held.is_empty() && in_pools.is_empty()) || settings.kubeconfig.is_none() {
        return Ok(false);
    }
    let uids = cluster
        .source(settings, None)?
        .claim_uids()
        .map_err(|err| of_source(&err))?;
    let uids: BTreeSet<String> = uids.into_iter().collect();
    let (mut is_any, mut errors) = (false, Vec::new());
    match free_in_pools(&in_pools, &uids, machine) {
        Ok(freed) => is_any |= freed > 0,
        Err(err) => errors.push(err),
    }
    for (folder, owners) in held {
        let known = NodeState::of(machine.root(), &network_of(folder), machine.log());
        match claimed::free(folder, &owners, &uids, known.host()) {
            Ok(freed) => is_any |= !freed.is_empty(),
            Err(err) => errors.push(err),
        }
    }
    Error::joined(&errors).map(|()| is_any)
}

/// Frees the addresses of the claims `in_pools` that are not in `uids`, the list of all claims. Returns
/// the number of addresses. A claim in no record is no longer used by this node: a record is written
/// before the address is reserved, and read here after `in_pools`.
pub(crate) fn free_in_pools(
    in_pools: &BTreeSet<String>,
    uids: &BTreeSet<String>,
    machine: &dyn Machine,
) -> Result<usize, Error> {
    if in_pools.is_empty() {
        return Ok(0);
    }
    let mut used = BTreeSet::new();
    for record in machine.records().map_err(Error::from)? {
        let owners = record
            .attachments
            .iter()
            .filter_map(|it| it.claim.as_deref());
        used.extend(owners.filter_map(uid_of_owner).map(str::to_owned));
    }
    let left = in_pools.difference(&used).cloned().collect();
    let deleted = in_pools.difference(uids).cloned().collect();
    let known = NodeState::of(machine.root(), "", machine.log());
    let freed = whereabouts::claims::free(&left, &deleted, known.host())?;
    Ok(freed.len())
}
