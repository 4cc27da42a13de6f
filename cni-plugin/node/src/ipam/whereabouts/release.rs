//! The end of attachments: their addresses are released in the journals, and the node's debts paid.

use super::session::Session;
use super::store::{self, FOLDER, JournalFile};
use super::way::{Way, this_boot};
use crate::ipam::Host;
use braid_core::cni::{Error, Kind, Owner};
use braid_core::ipam::whereabouts::api::Store;
use braid_core::ipam::whereabouts::journal::{Journal, Own, Place, State};
use braid_core::ipam::whereabouts::pool::Entry;
use braid_core::ipam::whereabouts::steps;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Returns the attachments with an address of a pool.
pub fn owners() -> Result<Vec<Owner>, Error> {
    let mut owners = Vec::new();
    for path in store::journals(Path::new(FOLDER))? {
        let journal = store::peek(&path)?;
        let used = journal.own.values().filter(|own| own.state == State::Used);
        owners.extend(used.map(owner_of));
    }
    Ok(owners)
}

/// Releases the addresses of the attachments for which `is_its` is true, in all pools.
pub fn free(is_its: &dyn Fn(&Owner) -> bool, host: Host<'_>) -> Result<(), Error> {
    release_where(host, &|own| is_its(&owner_of(own))).map(drop)
}

fn owner_of(own: &Own) -> Owner {
    Owner::new(&own.network, &own.entry.id, &own.entry.ifname)
}

/// True if a journal has an address of the attachment.
pub(super) fn is_known(entry: &Entry) -> Result<bool, Error> {
    for path in store::journals(Path::new(FOLDER))? {
        if store::peek(&path)?.knows(entry) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Releases addresses in all pools, and pays the node's debts.
pub(super) fn release_where(
    host: Host<'_>,
    is_gone: &dyn Fn(&Own) -> bool,
) -> Result<Vec<IpAddr>, Error> {
    let concerns = |journal: &Journal| journal.own.values().any(is_gone);
    release_in_all(host, &concerns, &|journal| {
        steps::release_where(journal, is_gone)
    })
}

/// Releases the addresses of an attachment in all pools, and pays the node's debts.
pub(super) fn release_known(host: Host<'_>, entry: &Entry) -> Result<Vec<IpAddr>, Error> {
    let concerns = |journal: &Journal| {
        let mut waiting = journal.waiting.iter();
        journal.knows(entry) || waiting.any(|waiting| waiting.entry == *entry)
    };
    release_in_all(host, &concerns, &|journal| {
        steps::release_known(journal, entry)
    })
}

fn release_in_all(
    host: Host<'_>,
    concerns: &dyn Fn(&Journal) -> bool,
    release: &dyn Fn(&mut Journal) -> Vec<u128>,
) -> Result<Vec<IpAddr>, Error> {
    let (mut released, mut errors) = (Vec::new(), Vec::new());
    let mut payer = Payer::new(host, None);
    for path in store::journals(Path::new(FOLDER))? {
        let seen = store::peek(&path)?;
        let Some(place) = &seen.place else { continue };
        let owes = seen.own.values().any(|own| own.state != State::Used);
        if !owes && !concerns(&seen) && !seen.is_behind() {
            continue;
        }
        match end(place, &mut payer, &mut |journal| release(journal)) {
            Ok(some) => released.extend(some),
            Err(err) => errors.push(err),
        }
    }
    Error::joined(&errors).map(|()| released)
}

/// Releases addresses in a pool, and returns them. Without an agent it then pays the node's debts there,
/// or leaves them to the next call if the API server does not answer.
pub(super) fn end(
    place: &Place,
    payer: &mut Payer<'_>,
    release: &mut dyn FnMut(&mut Journal) -> Vec<u128>,
) -> Result<Vec<IpAddr>, Error> {
    let folder = Path::new(FOLDER);
    let mut released = Vec::new();
    JournalFile::of(folder, &place.name).update(&mut |journal| {
        journal.place.get_or_insert_with(|| place.clone());
        released = release(journal);
    })?;
    if !store::has_agent(folder, &place.name) {
        payer.pay(place);
    }
    Ok(steps::addresses(place.net, &released))
}

/// Pays the debts of a node. After an API server has not answered, it asks it no more.
pub(super) struct Payer<'a> {
    host: Host<'a>,
    /// Pod of the call. It tells a node that has no name yet which one it is.
    pod: Option<&'a (String, String)>,
    /// Kubeconfigs of API servers that have not answered.
    silent: BTreeSet<PathBuf>,
}

impl<'a> Payer<'a> {
    pub(super) fn new(host: Host<'a>, pod: Option<&'a (String, String)>) -> Self {
        Self {
            host,
            pod,
            silent: BTreeSet::new(),
        }
    }

    /// Pays in a pool. Errors are only logged.
    fn pay(&mut self, place: &Place) {
        if self.silent.contains(&place.kubeconfig) {
            return;
        }
        if let Err(err) = self.try_to_pay(place) {
            self.host.log.warn(&err);
            // An error of this pool alone does not concern others.
            if err.kind == Kind::TryAgain {
                self.silent.insert(place.kubeconfig.clone());
            }
        }
    }

    fn try_to_pay(&self, place: &Place) -> Result<(), Error> {
        let boot = this_boot()?;
        let mut way = Way::new(self.host.servers, &place.kubeconfig, &boot, self.pod);
        let node = way.node()?;
        let mut journal = JournalFile::lock(Path::new(FOLDER), &place.name)?;
        let mut session = Session::open(place, &node, &mut *way.server, &mut journal)?;
        session.judge_waiting(&is_running, false)?;
        session.pay()
    }
}

/// True if the process of a call runs.
pub(super) fn is_running(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}
