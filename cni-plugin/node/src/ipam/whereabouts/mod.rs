//! Addresses that are unique in the cluster, in Whereabouts' objects.
//!
//! ```text
//!  WhereaboutsConfig ─► one Session per range: store (journal) + remote (API server) ─► Lease
//!  Lease ─► probed: without addresses of other hosts on the link, if the configuration requests it
//!  DEL, GC: the journals name pools and API server, so no configuration is needed
//!  agent ─► Tender ─► one Session per journal: debts paid, addresses held
//!  braid ipam ─► admin: pools listed, a node's addresses released; finish: the end of Whereabouts
//! ```

pub mod admin;
pub mod claims;
pub mod finish;
mod probed;
mod release;
mod requests;
mod reservations;
mod reserve;
pub mod session;
pub mod store;
pub mod tender;
mod way;

use super::host_local::claimed;
use super::liveness::Netns;
use super::{Host, Ipam, Kept};
use braid_core::cni::{AddResult, Error, IpConfig, Kind, Owner};
use braid_core::ipam::whereabouts::api::Store;
use braid_core::ipam::whereabouts::journal::{Asker, Journal, Own};
use braid_core::ipam::whereabouts::pool::Entry;
use braid_core::ipam::whereabouts::{PoolRange, WhereaboutsConfig, last, names, steps};
use braid_core::ipam::{Claim, Lease};
use braid_core::k8s::ipam_claim::uid_of_owner;
use ipnet::IpNet;
use release::{Payer, is_known, is_running, release_in, release_known, release_where};
pub use release::{free, owners};
use session::Session;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};
use store::{FOLDER, JournalFile};
use way::{Way, kubeconfig, pool_of, this_boot};

/// Returns the entry of an attachment, or that of the claim which owns its addresses.
fn entry(owner: &Owner) -> Entry {
    if let Some(uid) = uid_of_owner(&owner.container_id) {
        return Entry::of_claim(uid);
    }
    Entry {
        id: owner.container_id.clone(),
        podref: String::new(),
        ifname: owner.ifname.clone(),
    }
}

/// Gives an attachment an address of a range that the node holds, or the one that it has; `None` if the
/// API server must be asked.
fn held(
    config: &WhereaboutsConfig,
    range: &PoolRange,
    asker: Asker<'_>,
    (boot, requested): (&str, Option<IpAddr>),
) -> Result<Option<IpAddr>, Error> {
    // The API server has a claim's address before its pod.
    if asker.entry.claim().is_some() {
        return Ok(None);
    }
    for path in store::journals(Path::new(FOLDER))? {
        let place = store::peek(&path)?.place;
        let Some(place) = place.filter(|place| config.gives_out_of(range, place)) else {
            continue;
        };
        let mut taken = None;
        JournalFile::at(&path).update(&mut |journal| {
            taken = steps::take((journal, range, requested), asker, boot);
        })?;
        if let Some(address) = taken.and_then(|at| names::address(place.net, at)) {
            return Ok(Some(address));
        }
    }
    Ok(None)
}

/// Reserves an address of a range by requests.
fn ask(
    config: &WhereaboutsConfig,
    range: &PoolRange,
    asker: Asker<'_>,
    requested: Option<IpAddr>,
    way: &mut Way<'_>,
) -> Result<IpAddr, Error> {
    let (place, part) = pool_of(config, range, way)?;
    let node = way.node()?;
    let folder = Path::new(FOLDER);
    // While this call waits for the lock, another one may hold an address for it.
    JournalFile::of(folder, &place.name)
        .update(&mut |journal| journal.wait(asker.entry, std::process::id()))?;
    let mut journal = JournalFile::lock(folder, &place.name)?;
    let mut session = Session::open(&place, &node, &mut *way.server, &mut journal)?;
    session.judge_waiting(&is_running, store::has_agent(folder, &place.name))?;
    let reserved = session.reserve(asker, &part, requested);
    if reserved.is_err() {
        journal.update(&mut |journal| journal.stop_waiting(asker.entry))?;
    }
    reserved
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

/// Returns the addresses of an attachment.
fn used_in(journals: &[Journal], entry: &Entry) -> Vec<IpAddr> {
    let mut used = Vec::new();
    for journal in journals {
        let net = journal.place.as_ref().map(|place| place.net);
        let at = journal.used_by(entry);
        used.extend(net.zip(at).and_then(|(net, at)| names::address(net, at)));
    }
    used
}

/// Returns the journals of the pools of a configuration.
fn journals_of(config: &WhereaboutsConfig) -> Result<Vec<Journal>, Error> {
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
fn next(range: &PoolRange, journals: &[Journal]) -> Option<IpAddr> {
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

/// Reserves an address of each range, or of the first one with a free address.
fn assign(config: &WhereaboutsConfig, owner: &Owner, host: Host<'_>) -> Result<Lease, Error> {
    let kubeconfig = kubeconfig(config)?;
    let boot = this_boot()?;
    let mut way = Way::new(
        host.servers,
        &kubeconfig,
        config.pod.as_ref(),
        Duration::MAX,
    )?;
    let entry = entry(owner);
    let pod = config.pod.as_ref().filter(|_| entry.claim().is_none());
    let pod = pod.and_then(|(namespace, pod)| last::key(namespace, pod, &owner.ifname));
    let asker = Asker {
        entry: &entry,
        network: &owner.network,
        pod: pod.as_deref(),
    };
    let mut ips = Vec::new();
    let mut full = None;
    // Of several ranges, the first is the first with a requested address.
    let is_asked = |range: &PoolRange| config.requested.iter().any(|ip| range.contains(*ip));
    let has_asked = config.is_first && config.ranges.iter().any(is_asked);
    let ranges = config.ranges.iter();
    for range in ranges.filter(|range| !has_asked || is_asked(range)) {
        let requested = config
            .requested
            .iter()
            .find(|ip| range.contains(**ip))
            .copied();
        let reserved = held(config, range, asker, (&boot, requested)).and_then(|held| match held {
            Some(address) => Ok(address),
            None => ask(config, range, asker, requested, &mut way),
        });
        match reserved {
            Ok(address) => {
                ips.push(in_range(range, address));
                if config.is_first {
                    break;
                }
            }
            Err(err) if config.is_first && err.kind == Kind::NoFreeAddress => full = Some(err),
            Err(err) => {
                give_back(config, owner, host);
                return Err(err);
            }
        }
    }
    if let Some(full) = full.filter(|_| ips.is_empty()) {
        return Err(full);
    }
    if let Err(err) = name_containers(config, &mut way) {
        host.log.warn(&err);
    }
    ensure_used(config, &entry, &ips).inspect_err(|_| give_back(config, owner, host))?;
    Ok(config.lease(ips))
}

/// Releases the addresses of an ADD that fails. The journals owe those that cannot be released now.
fn give_back(config: &WhereaboutsConfig, owner: &Owner, host: Host<'_>) {
    if let Err(left) = config.release(owner, host) {
        host.log.warn(&left);
    }
}

/// The pools of an ADD that has addresses.
struct Assigned<'a> {
    config: &'a WhereaboutsConfig,
    owner: &'a Owner,
    host: Host<'a>,
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

impl Ipam for WhereaboutsConfig {
    fn has_ipv6(&self) -> bool {
        self.ranges.iter().any(|range| range.first.is_ipv6())
            || self.fixed.iter().any(|ip| ip.address.addr().is_ipv6())
    }

    fn without_ipv6(&self) -> Option<Box<dyn Ipam>> {
        let mut config = self.clone();
        config.ranges.retain(|range| range.first.is_ipv4());
        config.requested.retain(IpAddr::is_ipv4);
        config.fixed.retain(|ip| ip.address.addr().is_ipv4());
        config.routes.retain(|route| route.dst.addr().is_ipv4());
        let is_empty = config.ranges.is_empty() && config.fixed.is_empty();
        (!is_empty).then(|| -> Box<dyn Ipam> { Box::new(config) })
    }

    fn probes(&self) -> bool {
        self.probes
    }

    fn reserve(&self, owner: &Owner, host: Host<'_>) -> Result<Lease, Error> {
        let lease = assign(self, owner, host)?;
        let Some(prober) = host.prober.filter(|_| self.probes) else {
            return Ok(lease);
        };
        let mut pools = Assigned {
            config: self,
            owner,
            host,
        };
        let probed = probed::without_conflict(lease, prober, &mut pools, host.log);
        probed.inspect_err(|_| give_back(self, owner, host))
    }

    fn reserve_claimed(
        &self,
        claim: &Claim,
        owner: &Owner,
        host: Host<'_>,
    ) -> Result<Lease, Error> {
        // During a migration of a virtual machine, another host has the addresses of the claim.
        let mut config = Self {
            probes: false,
            ..self.clone()
        };
        let has = |ip: &IpAddr| self.ranges.iter().any(|range| range.contains(*ip));
        if let Some(ip) = claim.addresses.iter().find(|ip| !has(ip)) {
            let why = format!("address {ip} of claim {} is in no range", claim.owner);
            return Err(Error::config(why).at_key("ipam"));
        }
        if !claim.addresses.is_empty() {
            config.requested.clone_from(&claim.addresses);
        }
        config.reserve(&claimed::owner(&owner.network, &claim.owner), host)
    }

    fn owners(&self) -> Result<Vec<Owner>, Error> {
        owners()
    }

    fn keeps_claims(&self) -> bool {
        true
    }

    fn release_claimed(&self, owner: &Owner, host: Host<'_>) -> Result<(), Error> {
        match uid_of_owner(&owner.container_id) {
            Some(_) => self.release(owner, host).map(drop),
            None => Ok(()),
        }
    }

    fn peek(&self, _host: Host<'_>) -> Result<Lease, Error> {
        let journals = journals_of(self)?;
        let mut ips = Vec::new();
        for range in &self.ranges {
            let free = next(range, &journals);
            ips.extend(free.map(|address| in_range(range, address)));
            if self.is_first && !ips.is_empty() {
                break;
            }
        }
        Ok(self.lease(ips))
    }

    fn check(
        &self,
        owner: &Owner,
        prev_result: Option<&AddResult>,
        _host: Host<'_>,
    ) -> Result<(), Error> {
        let entry = entry(owner);
        let id = &owner.container_id;
        let held = used_in(&journals_of(self)?, &entry);
        let has_one = |range: &PoolRange| held.iter().any(|ip| range.net.contains(ip));
        let lacking = self.ranges.iter().find(|range| !has_one(range));
        if let Some(range) = lacking.filter(|_| !self.is_first || held.is_empty()) {
            let why = format!("no address of {} is reserved for container {id}", range.net);
            return Err(Error::internal(why));
        }
        let ips = prev_result.map_or(&[][..], |result| &result.ips);
        let has = |ip: &IpAddr| ips.iter().any(|one| one.address.addr() == *ip);
        match held.iter().find(|ip| prev_result.is_some() && !has(ip)) {
            Some(ip) => {
                let why = format!("address {ip} of container {id} is not in prevResult");
                Err(Error::internal(why))
            }
            None => Ok(()),
        }
    }

    /// Asks no API server: a runtime calls this every few seconds.
    fn status(&self, _host: Host<'_>) -> Result<Option<String>, Error> {
        let path = kubeconfig(self).map_err(|err| Error::not_available(err.to_string()))?;
        let opened = std::fs::File::open(&path);
        opened.map_err(|err| Error::not_available(format!("open {}: {err}", path.display())))?;
        let journals = journals_of(self)?;
        let mut ranges = self.ranges.iter();
        let full = ranges.find(|range| next(range, &journals).is_none());
        Ok(full.map(|range| format!("no address of {} is free", range.net)))
    }

    /// Releases the addresses of `owner` in all pools. Without an answer of the API server, the journal
    /// owes them. An owner that no journal knows may be one that Whereabouts attached, so it is looked
    /// for in the pools of this configuration.
    fn release(&self, owner: &Owner, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        let entry = entry(owner);
        if is_known(&entry)? {
            return release_known(host, &entry);
        }
        if entry.claim().is_some() {
            return Ok(Vec::new());
        }
        let kubeconfig = match kubeconfig(self) {
            Ok(kubeconfig) => kubeconfig,
            // Without one, this node has never had an address of the network.
            Err(err) => {
                host.log.warn(&err);
                return Ok(Vec::new());
            }
        };
        let mut payer = Payer::new(host, self.pod.as_ref());
        let mut places = Vec::new();
        for range in &self.ranges {
            let way = payer.way(&kubeconfig)?;
            match pool_of(self, range, way) {
                Ok((place, _)) => places.push(place),
                Err(err) => host.log.warn(&err),
            }
        }
        release_in(places, &mut payer, &|journal| {
            steps::release(journal, &entry)
        })
    }

    fn gc(&self, kept: Kept<'_>, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        let network = host.liveness.network();
        let is_gone = |own: &Own| {
            // The caller knows the claims of its records.
            let is_its = own.network == network || own.network.is_empty();
            if !is_its || own.entry.claim().is_some() {
                return false;
            }
            let owner = Owner::new(network, &own.entry.id, &own.entry.ifname);
            match kept {
                // An attachment that was read back from the pool may be of another network.
                Kept::Listed(owners) if !own.network.is_empty() => !owners.contains(&owner),
                Kept::Listed(_) | Kept::NotGone => {
                    host.liveness.netns_of(&owner, UNIX_EPOCH) == Netns::Gone
                }
            }
        };
        release_where(host, &is_gone)
    }
}

fn in_range(range: &PoolRange, address: IpAddr) -> IpConfig {
    let net = IpNet::new(address, range.prefix_len);
    IpConfig {
        address: net.unwrap_or_else(|_| IpNet::from(address)),
        gateway: range.gateway,
        interface: None,
    }
}

/// Without an agent: gives entries that were held the ids of their containers, as the last of several
/// calls that waited, and gives back the others. By these ids, Whereabouts finds entries after a
/// downgrade.
fn name_containers(config: &WhereaboutsConfig, way: &mut Way<'_>) -> Result<(), Error> {
    let folder = Path::new(FOLDER);
    for journal in journals_of(config)? {
        if let Some(place) = &journal.place
            && journal.waiting() == 0
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

#[cfg(test)]
mod tests;
