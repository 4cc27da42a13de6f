//! The end of attachments: their addresses are released in the journals, and the node's debts paid.

use super::reservations::reservations;
use super::session::Session;
use super::store::{self, FOLDER, JournalFile};
use super::way::Way;
use crate::ipam::Host;
use crate::sys::lock;
use braid_core::cni::{Error, Kind, Owner};
use braid_core::ipam::whereabouts::api::Store;
use braid_core::ipam::whereabouts::journal::{Journal, Own, Place, State};
use braid_core::ipam::whereabouts::{pool, steps};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest time for the node's debts in one call. Runtimes wait for a DEL, and the next call pays too.
const PATIENCE: Duration = Duration::from_secs(20);

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
pub(super) fn is_known(entry: &pool::Entry) -> Result<bool, Error> {
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
pub(super) fn release_known(host: Host<'_>, entry: &pool::Entry) -> Result<Vec<IpAddr>, Error> {
    let concerns = |journal: &Journal| journal.knows(entry) || journal.waiting.has(entry);
    release_in_all(host, &concerns, &|journal| {
        steps::release_known(journal, entry)
    })
}

fn release_in_all(
    host: Host<'_>,
    concerns: &dyn Fn(&Journal) -> bool,
    release: &dyn Fn(&mut Journal) -> Vec<u128>,
) -> Result<Vec<IpAddr>, Error> {
    let mut places = Vec::new();
    for path in store::journals(Path::new(FOLDER))? {
        let seen = store::peek(&path)?;
        let owes = seen.own.values().any(|own| own.state != State::Used);
        if owes || concerns(&seen) || seen.is_behind() {
            places.extend(seen.place);
        }
    }
    release_in(places, &mut Payer::new(host, None), release)
}

/// Releases addresses in these pools, and returns them. Then pays the node's debts in the pools without
/// an agent, or leaves them to the next call.
pub(super) fn release_in(
    mut places: Vec<Place>,
    payer: &mut Payer<'_>,
    release: &dyn Fn(&mut Journal) -> Vec<u128>,
) -> Result<Vec<IpAddr>, Error> {
    let folder = Path::new(FOLDER);
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    for place in &places {
        let mut released = Vec::new();
        let left = JournalFile::of(folder, &place.name).update(&mut |journal| {
            journal.place.get_or_insert_with(|| place.clone());
            released = release(journal);
        });
        errors.extend(left.err());
        all.extend(steps::addresses(place.net, &released));
    }
    places.retain(|place| !store::has_agent(folder, &place.name));
    payer.pay(&places);
    Error::joined(&errors).map(|()| all)
}

/// Returns the time at which a call pays no more: all of its releases share it. A process with several
/// threads serves several calls, and each release has the time for itself.
fn deadline() -> Instant {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    let begin = if lock::has_threads() {
        now
    } else {
        *BEGIN.get_or_init(|| now)
    };
    begin + PATIENCE
}

/// Pays the debts of a node. After an API server has not answered, it asks it no more.
pub(super) struct Payer<'a> {
    host: Host<'a>,
    /// Pod of the call. It tells a node that has no name yet which one it is.
    pod: Option<&'a (String, String)>,
    /// Time at which it ends.
    until: Instant,
    /// Ways to the API servers, by kubeconfig.
    ways: BTreeMap<PathBuf, Way<'a>>,
    /// Kubeconfigs of API servers that have not answered.
    silent: BTreeSet<PathBuf>,
}

impl<'a> Payer<'a> {
    pub(super) fn new(host: Host<'a>, pod: Option<&'a (String, String)>) -> Self {
        Self {
            host,
            pod,
            until: deadline(),
            ways: BTreeMap::new(),
            silent: BTreeSet::new(),
        }
    }

    /// Returns the way to the API server of a kubeconfig.
    pub(super) fn way(&mut self, kubeconfig: &Path) -> Result<&mut Way<'a>, Error> {
        match self.ways.entry(kubeconfig.to_owned()) {
            Entry::Occupied(way) => Ok(way.into_mut()),
            Entry::Vacant(place) => {
                let left = self.until.saturating_duration_since(Instant::now());
                let way = Way::new(self.host.servers, kubeconfig, self.pod, left)?;
                Ok(place.insert(way))
            }
        }
    }

    /// Pays in these pools. First come those for which no other call sends requests. Errors are only
    /// logged.
    fn pay(&mut self, places: &[Place]) {
        let mut busy = Vec::new();
        for place in places {
            match JournalFile::try_lock(Path::new(FOLDER), &place.name) {
                Ok(Some(journal)) => self.pay_in(place, Ok(journal)),
                Ok(None) => busy.push(place),
                Err(err) => self.host.log.warn(&err),
            }
        }
        for place in busy {
            if !self.silent.contains(&place.kubeconfig) {
                let (folder, until) = (Path::new(FOLDER), self.until);
                let journal = JournalFile::lock_until(folder, &place.name, until);
                self.pay_in(place, journal);
            }
        }
    }

    /// Deletes reservations without an entry, in pools without an agent. Errors are only logged.
    pub(super) fn collect(&mut self, places: &[Place]) {
        for place in places {
            let has_agent = || store::has_agent(Path::new(FOLDER), &place.name);
            if place.has_reservations
                && !has_agent()
                && let Err(err) = self.collect_in(place)
            {
                self.host.log.warn(&err);
            }
        }
    }

    fn collect_in(&mut self, place: &Place) -> Result<(), Error> {
        let until = self.until;
        let way = self.way(&place.kubeconfig)?;
        let node = way.node()?;
        let all = reservations(&mut *way.server)?;
        let mut journal = JournalFile::lock_until(Path::new(FOLDER), &place.name, until)?;
        let mut session = Session::open(place, &node, &mut *way.server, &mut journal)?;
        session.collect_reservations(&all)
    }

    fn pay_in(&mut self, place: &Place, journal: Result<JournalFile, Error>) {
        if self.silent.contains(&place.kubeconfig) {
            return;
        }
        let paid = journal.and_then(|journal| self.try_to_pay(place, journal));
        if let Err(err) = paid {
            self.host.log.warn(&err);
            // An error of this pool alone does not concern others.
            if err.kind == Kind::TryAgain {
                self.silent.insert(place.kubeconfig.clone());
            }
        }
    }

    fn try_to_pay(&mut self, place: &Place, mut journal: JournalFile) -> Result<(), Error> {
        let way = self.way(&place.kubeconfig)?;
        let node = way.node()?;
        let mut session = Session::open(place, &node, &mut *way.server, &mut journal)?;
        session.judge_waiting(&is_running, false)?;
        session.pay()
    }
}

/// True if the process of a call runs.
pub(super) fn is_running(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}
