//! The container that owns an nf_tables element: its record and its liveness.
//!
//! A container may take over an object of a terminated container. The DEL of the terminated
//! container may run at any moment. DEL deletes only objects that still belong to the terminated
//! container. So before a call takes over an object, the call waits until no other call is
//! processing the terminated container.

use crate::Error;
use crate::ipam::liveness::{Netns, netns_at};
use crate::store::record::{self, Folder, Record};
use crate::sys::netns::{self, NetNs};
use braid_core::plan::step::Step;
use braid_core::plan::thing::host_ports::Holder;
use braid_core::plan::thing::{HostPorts, Thing};
use std::collections::BTreeSet;

/// Seconds to wait for a call that is processing a terminated container. Two calls that wait for
/// each other both give up after this time.
const PATIENCE: u32 = 4;

/// Returns the state of the record's network namespace. It is `Gone` if another namespace is at the
/// recorded path now.
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

/// True if the record's network namespace may still exist and no call has begun to delete its
/// attachments.
pub fn is_alive(record: &Record) -> bool {
    !record.is_leaving() && netns_of(record) != Netns::Gone
}

/// True if the container's namespace is certainly gone. An ordinary record without a namespace is not
/// judged; a foreign one is of an earlier boot.
pub fn is_gone(record: &Record) -> bool {
    (record.netns.is_some() || record.is_of_earlier_boot()) && netns_of(record) == Netns::Gone
}

/// Returns the running container that the owner text of an nf_tables element stands for.
pub(crate) fn of(owner: &str) -> Holder {
    match record::of_owner(owner) {
        None => Holder::Somebody,
        Some(records) => match records.into_iter().find(is_alive) {
            None => Holder::Nobody,
            Some(record) => Holder::Container(record.key.owner.container_id),
        },
    }
}

/// Host ports of one attachment of a container that has several attachments.
pub(crate) struct Sibling {
    pub(crate) ports: HostPorts,
    /// True if the attachment is isolated from the other ports of its bridge.
    pub(crate) is_apart: bool,
}

/// Returns the host ports of a container's live attachments, oldest first. Skips the attachment
/// with the owner `but`.
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

/// Locks on the record folders of terminated containers, held until this value is dropped.
pub(crate) struct Quiet {
    _folders: Vec<Folder>,
}

/// Waits until no other call is processing the containers of `owners`, and locks their record
/// folders. Skips the container of `own`, which the caller itself is processing.
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
