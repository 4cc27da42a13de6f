//! Addresses of this node as its journals have them.

use super::store::{self, FOLDER};
use braid_core::cni::{Error, IpConfig, Owner};
use braid_core::ipam::whereabouts::journal::Journal;
use braid_core::ipam::whereabouts::pool::Entry;
use braid_core::ipam::whereabouts::{PoolRange, WhereaboutsConfig, names, steps};
use braid_core::k8s::ipam_claim::uid_of_owner;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::Path;

/// Returns the entry of an attachment, or that of the claim which owns its addresses.
pub(super) fn entry(owner: &Owner) -> Entry {
    if let Some(uid) = uid_of_owner(&owner.container_id) {
        return Entry::of_claim(uid);
    }
    Entry {
        id: owner.container_id.clone(),
        podref: String::new(),
        ifname: owner.ifname.clone(),
    }
}

/// Returns the addresses of an attachment.
pub(super) fn used_in(journals: &[Journal], entry: &Entry) -> Vec<IpAddr> {
    let mut used = Vec::new();
    for journal in journals {
        let net = journal.place.as_ref().map(|place| place.net);
        let at = journal.used_by(entry);
        used.extend(net.zip(at).and_then(|(net, at)| names::address(net, at)));
    }
    used
}

/// Returns the journals of the pools of a configuration.
pub(super) fn journals_of(config: &WhereaboutsConfig) -> Result<Vec<Journal>, Error> {
    let mut found = Vec::new();
    for path in store::journals(Path::new(FOLDER))? {
        let journal = store::peek(&path)?;
        let mut place = journal.place.iter();
        if place.any(|place| config.has_pool(place)) {
            found.push(journal);
        }
    }
    Ok(found)
}

/// Returns the address of a range that the node would take next, by the journals.
pub(super) fn next(range: &PoolRange, journals: &[Journal]) -> Option<IpAddr> {
    let mut parts: Vec<(&Journal, PoolRange)> = journals
        .iter()
        .filter_map(|journal| Some((journal, range.slice(journal.place.as_ref()?.net)?)))
        .collect();
    // Without a journal the node has assigned no address yet.
    let none = Journal::default();
    if parts.is_empty() {
        parts.push((&none, range.clone()));
    }
    let mut next = parts.iter().filter_map(|(journal, part)| {
        let is_taken = |address| {
            let place = journal.place.as_ref();
            let at = place.and_then(|place| names::offset(place.net, address));
            at.is_some_and(|at| journal.is_taken(at))
        };
        // The first ADD reads the pool, which may be braid's alone.
        let part = if journal.has_pool() {
            steps::part(journal, part)?
        } else {
            part.clone()
        };
        steps::free(journal, &part, is_taken).next()
    });
    next.next()
}

pub(super) fn in_range(range: &PoolRange, address: IpAddr) -> IpConfig {
    let net = IpNet::new(address, range.prefix_len);
    IpConfig {
        address: net.unwrap_or_else(|_| IpNet::from(address)),
        gateway: range.gateway,
        interface: None,
    }
}
