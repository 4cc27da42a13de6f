//! The container behind the owner that an element names: its record, and whether it lives.
//!
//! A dead container's things are free for anybody who needs them. Its DEL may come at any moment,
//! and reads what is still its own before it takes that away. So a call that takes something over
//! first waits until no call is busy with the dead container.

use crate::Error;
use crate::ipam::liveness::{Netns, netns_at};
use crate::store::record::{self, Folder, Record};
use crate::sys::netns::{self, NetNs};
use braid_core::plan::step::Step;
use braid_core::plan::thing::host_ports::Holder;
use braid_core::plan::thing::{HostPorts, Thing};
use std::collections::BTreeSet;

/// Seconds to wait for a call that is busy with a dead container. Two calls that wait for each
/// other both give up.
const PATIENCE: u32 = 4;

/// Tells what became of the namespace that a record names.
pub fn netns_of(record: &Record) -> Netns {
    let Some(path) = &record.netns else {
        return Netns::Gone;
    };
    let is_it = || match NetNs::open(path).map(|netns| netns.run(netns::cookie)) {
        Ok(Ok(Ok(cookie))) => record.is_of(Some(cookie)),
        _ => true,
    };
    let known = netns_at(path);
    if known == Netns::Alive && record.netns_cookie.is_some() && !is_it() {
        Netns::Gone
    } else {
        known
    }
}

/// Tells whether the container's namespace may still be in use, and nobody has begun to take the
/// attachment back.
pub fn is_alive(record: &Record) -> bool {
    !record.is_leaving() && netns_of(record) != Netns::Gone
}

/// Finds the holder of what this owner's text stands at.
pub(crate) fn of(owner: &str) -> Holder {
    match record::of_owner(owner) {
        None => Holder::Somebody,
        Some(records) => match records.into_iter().find(is_alive) {
            None => Holder::Nobody,
            Some(record) => Holder::Container(record.key.owner.container_id),
        },
    }
}

/// Ports that another attachment of a container asks for.
pub(crate) struct Sibling {
    pub(crate) ports: HostPorts,
    /// Nothing else that the container's bridge carries is to reach it.
    pub(crate) is_apart: bool,
}

/// Ports that the living attachments of a container ask for, but for one owner; the oldest first.
pub(crate) fn siblings(container_id: &str, but: &str) -> Result<Vec<Sibling>, Error> {
    let mut siblings = Vec::new();
    for record in record::of_container(container_id)?
        .iter()
        .filter(|record| is_alive(record))
    {
        for attached in &record.attachments {
            let is_other = |step: &&Step| matches!(step, Step::Add(Thing::HostPorts(ports)) if ports.owner != but);
            let Some(Step::Add(Thing::HostPorts(ports))) = attached.steps().find(is_other) else {
                continue;
            };
            let is_apart =
                |step: &Step| matches!(step, Step::Add(Thing::Firewall(what)) if what.is_within());
            siblings.push(Sibling {
                ports: ports.clone(),
                is_apart: attached.steps().any(is_apart),
            });
        }
    }
    Ok(siblings)
}

/// The containers of dead owners, which no call is busy with until this is dropped.
pub(crate) struct Quiet {
    _folders: Vec<Folder>,
}

/// Waits until no call is busy with the containers of these owners, but for the one of `own`, whom
/// the caller works for.
pub(crate) fn quiet<'a>(
    own: &str,
    owners: impl IntoIterator<Item = &'a str>,
) -> Result<Quiet, Error> {
    let mut containers: BTreeSet<String> = owners
        .into_iter()
        .filter_map(record::container_of)
        .collect();
    record::container_of(own).map(|own| containers.remove(&own));
    let folders = containers
        .iter()
        .map(|id| Folder::lock_within(id, PATIENCE));
    Ok(Quiet {
        _folders: folders.collect::<Result<_, _>>()?,
    })
}
