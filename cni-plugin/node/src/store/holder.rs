//! The container behind the owner of an nf_tables element: its record and its liveness.
//!
//! Objects of a terminated container are free for other containers. Its DEL may run at any moment,
//! and checks which objects still belong to it before it deletes them. So a call that takes over an
//! object first waits until no call is processing the terminated container.

use crate::Error;
use crate::ipam::liveness::{Netns, netns_at};
use crate::store::record::{self, Folder, Record};
use crate::sys::netns::{self, NetNs};
use braid_core::plan::step::Step;
use braid_core::plan::thing::host_ports::Holder;
use braid_core::plan::thing::{HostPorts, Thing};
use std::collections::BTreeSet;

/// Seconds to wait for a call that is processing a terminated container. Two calls that wait for
/// each other both give up.
const PATIENCE: u32 = 4;

/// Returns the state of the network namespace in a record.
pub fn netns_of(record: &Record) -> Netns {
    let Some(path) = &record.netns else {
        return Netns::Gone;
    };
    let known = netns_at(path);
    if known == Netns::Alive
        && record.netns_cookie.is_some()
        && let Ok(netns) = NetNs::open(path)
        && let Ok(Ok(cookie)) = netns.run(netns::cookie)
        && !record.is_of(Some(cookie))
    {
        return Netns::Gone;
    }
    known
}

/// True if the container's namespace may still exist and no call has begun to delete the
/// attachment.
pub fn is_alive(record: &Record) -> bool {
    !record.is_leaving() && netns_of(record) != Netns::Gone
}

/// Returns the container behind an element's owner text.
pub(crate) fn of(owner: &str) -> Holder {
    match record::of_owner(owner) {
        None => Holder::Somebody,
        Some(records) => match records.into_iter().find(is_alive) {
            None => Holder::Nobody,
            Some(record) => Holder::Container(record.key.owner.container_id),
        },
    }
}

/// Host ports of another attachment of the container.
pub(crate) struct Sibling {
    pub(crate) ports: HostPorts,
    /// True if the attachment is isolated from the other ports of its bridge.
    pub(crate) is_apart: bool,
}

/// Returns the host ports of a container's live attachments except for the owner `but`, oldest
/// first.
pub(crate) fn siblings(container_id: &str, but: &str) -> Result<Vec<Sibling>, Error> {
    let mut siblings = Vec::new();
    for record in record::of_container(container_id)? {
        if !is_alive(&record) {
            continue;
        }
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

/// Locks on the folders of terminated containers, held until drop.
pub(crate) struct Quiet {
    _folders: Vec<Folder>,
}

/// Waits until no call is processing the containers of `owners`, and locks them. Skips the
/// container of `own`, for which the caller already works.
pub(crate) fn quiet<'a>(
    own: &str,
    owners: impl IntoIterator<Item = &'a str>,
) -> Result<Quiet, Error> {
    let mut containers: BTreeSet<String> = BTreeSet::new();
    for owner in owners {
        containers.extend(record::container_of(owner));
    }
    if let Some(own) = record::container_of(own) {
        containers.remove(&own);
    }
    let mut folders = Vec::new();
    for id in &containers {
        folders.push(Folder::lock_within(id, PATIENCE)?);
    }
    Ok(Quiet { _folders: folders })
}
