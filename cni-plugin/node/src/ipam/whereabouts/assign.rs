//! ADD: an address of each range, or of the first one with a free address.

use super::journaled::{entry, in_range, journals_of, used_in};
use super::release::is_running;
use super::session::Session;
use super::store::{self, FOLDER, JournalFile};
use super::way::{Way, kubeconfig, pool_of, this_boot};
use super::{probed, reserve};
use crate::ipam::{Host, Ipam};
use braid_core::cni::{Error, IpConfig, Kind, Owner};
use braid_core::ipam::Lease;
use braid_core::ipam::whereabouts::api::Store;
use braid_core::ipam::whereabouts::journal::Asker;
use braid_core::ipam::whereabouts::pool::Entry;
use braid_core::ipam::whereabouts::{PoolRange, WhereaboutsConfig, last, names, steps};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Reserves an address of each range, or of the first one with a free address.
pub(super) fn assign(
    config: &WhereaboutsConfig,
    owner: &Owner,
    host: Host<'_>,
) -> Result<Lease, Error> {
    let kubeconfig = kubeconfig(config)?;
    let entry = entry(owner);
    let pod = config.pod.as_ref().filter(|_| entry.claim().is_none());
    let pod = pod.and_then(|(namespace, pod)| last::key(namespace, pod, &owner.ifname));
    let mut assignment = Assignment {
        config,
        asker: Asker {
            entry: &entry,
            network: &owner.network,
            pod: pod.as_deref(),
            avoids_refused: false,
        },
        boot: this_boot()?,
        way: Way::new(
            host.servers,
            &kubeconfig,
            config.pod.as_ref(),
            Duration::MAX,
        )?,
    };
    let ips = if config.is_first {
        assignment.first()
    } else {
        assignment.each()
    };
    let ips = ips.inspect_err(|err| {
        let is_none_reserved = config.is_first && err.kind == Kind::NoFreeAddress;
        if !is_none_reserved {
            give_back(config, owner, host);
        }
    })?;
    if let Err(err) = name_containers(config, &mut assignment.way) {
        host.log.warn(&err);
    }
    ensure_used(config, &entry, &ips).inspect_err(|_| give_back(config, owner, host))?;
    Ok(config.lease(ips))
}

/// Releases the addresses of an ADD that fails. The journals owe those that cannot be released now.
pub(super) fn give_back(config: &WhereaboutsConfig, owner: &Owner, host: Host<'_>) {
    if let Err(left) = config.release(owner, host) {
        host.log.warn(&left);
    }
}

/// The ranges of an ADD, and its way to the API server.
struct Assignment<'a> {
    config: &'a WhereaboutsConfig,
    asker: Asker<'a>,
    boot: String,
    way: Way<'a>,
}

impl Assignment<'_> {
    /// Reserves an address of each range.
    fn each(&mut self) -> Result<Vec<IpConfig>, Error> {
        let ranges = self.config.ranges.iter();
        ranges.map(|range| self.reserve(range)).collect()
    }

    /// Reserves an address of the first range with a free one, or with a requested one. Addresses that
    /// other hosts on a link have come after all others, in all ranges.
    fn first(&mut self) -> Result<Vec<IpConfig>, Error> {
        let config = self.config;
        let is_asked = |range: &&PoolRange| config.requested.iter().any(|ip| range.contains(*ip));
        let has_asked = config.ranges.iter().any(|range| is_asked(&range));
        let journals = journals_of(config)?;
        let has_refused = journals.iter().any(|journal| !journal.refused.is_empty());
        let rounds: &[bool] = if has_refused {
            &[true, false]
        } else {
            &[false]
        };
        let mut full = None;
        for avoids_refused in rounds {
            self.asker.avoids_refused = *avoids_refused;
            let ranges = config.ranges.iter();
            for range in ranges.filter(|range| !has_asked || is_asked(range)) {
                match self.reserve(range) {
                    Err(err) if err.kind == Kind::NoFreeAddress => full = Some(err),
                    reserved => return reserved.map(|ip| vec![ip]),
                }
            }
        }
        full.map_or(Ok(Vec::new()), Err)
    }

    /// Reserves an address of a range, the requested one if there is one.
    fn reserve(&mut self, range: &PoolRange) -> Result<IpConfig, Error> {
        let mut requested = self.config.requested.iter();
        let requested = requested.find(|ip| range.contains(**ip)).copied();
        let address = match self.held(range, requested)? {
            Some(address) => address,
            None => self.ask(range, requested)?,
        };
        Ok(in_range(range, address))
    }

    /// Gives the attachment an address of a range that the node holds, or the one that it has; `None` if
    /// the API server must be asked.
    fn held(&self, range: &PoolRange, requested: Option<IpAddr>) -> Result<Option<IpAddr>, Error> {
        // The API server has a claim's address before its pod.
        if self.asker.entry.claim().is_some() {
            return Ok(None);
        }
        for path in store::journals(Path::new(FOLDER))? {
            let place = store::peek(&path)?.place;
            let Some(place) = place.filter(|place| self.config.gives_out_of(range, place)) else {
                continue;
            };
            let mut taken = None;
            JournalFile::at(&path).update(&mut |journal| {
                taken = steps::take((journal, range, requested), self.asker, &self.boot);
            })?;
            if let Some(address) = taken.and_then(|at| names::address(place.net, at)) {
                return Ok(Some(address));
            }
        }
        Ok(None)
    }

    /// Reserves an address of a range by requests.
    fn ask(&mut self, range: &PoolRange, requested: Option<IpAddr>) -> Result<IpAddr, Error> {
        let (place, part) = pool_of(self.config, range, &mut self.way)?;
        let node = self.way.node()?;
        let (folder, asker) = (Path::new(FOLDER), self.asker);
        // While this call waits for the lock, another one may hold an address for it.
        JournalFile::of(folder, &place.name)
            .update(&mut |journal| journal.waiting.add(asker.entry, std::process::id()))?;
        let mut journal = JournalFile::lock(folder, &place.name)?;
        let mut session = Session::open(&place, &node, &mut *self.way.server, &mut journal)?;
        session.judge_waiting(&is_running, store::has_agent(folder, &place.name))?;
        let reserved = session.reserve(asker, &part, requested);
        if reserved.is_err() {
            journal.update(&mut |journal| journal.waiting.remove(asker.entry))?;
        }
        reserved
    }
}

/// Fails if a DEL of the attachment has released one of the addresses of its ADD meanwhile.
fn ensure_used(config: &WhereaboutsConfig, entry: &Entry, ips: &[IpConfig]) -> Result<(), Error> {
    let used = used_in(&journals_of(config)?, entry);
    let is_used = |ip: &IpConfig| used.contains(&ip.address.addr());
    if ips.iter().all(is_used) {
        return Ok(());
    }
    Err(reserve::released(entry))
}

/// Without an agent: gives entries that were held the ids of their containers, as the last of several
/// calls that waited, and gives back the others. By these ids, Whereabouts finds entries after a
/// downgrade.
fn name_containers(config: &WhereaboutsConfig, way: &mut Way<'_>) -> Result<(), Error> {
    let folder = Path::new(FOLDER);
    for journal in journals_of(config)? {
        if let Some(place) = &journal.place
            && journal.waiting.count() == 0
            && (journal.is_behind() || steps::held(&journal) > 0)
            && !store::has_agent(folder, &place.name)
        {
            let node = way.node()?;
            let mut file = JournalFile::lock(folder, &place.name)?;
            let mut session = Session::open(place, &node, &mut *way.server, &mut file)?;
            session.judge_waiting(&is_running, false)?;
            session.pay()?;
        }
    }
    Ok(())
}

/// The pools of an ADD that has addresses.
pub(super) struct Assigned<'a> {
    pub(super) config: &'a WhereaboutsConfig,
    pub(super) owner: &'a Owner,
    pub(super) host: Host<'a>,
}

impl probed::Pools for Assigned<'_> {
    fn can_replace(&self, address: IpAddr) -> bool {
        let mut ranges = self.config.ranges.iter();
        !self.config.requested.contains(&address) && ranges.any(|range| range.contains(address))
    }

    fn refuse(&mut self, address: IpAddr) -> Result<(), Error> {
        let entry = entry(self.owner);
        for journal in journals_of(self.config)? {
            if let Some(place) = &journal.place {
                JournalFile::of(Path::new(FOLDER), &place.name)
                    .update(&mut |journal| steps::refuse(journal, &entry, address))?;
            }
        }
        Ok(())
    }

    fn reserve(&mut self) -> Result<Lease, Error> {
        assign(self.config, self.owner, self.host)
    }
}
