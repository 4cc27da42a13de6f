//! The `host-local` IPAM: addresses from this node's ranges, stored as files in the reference
//! plugin's format.
//!
//! ```text
//!  config ─► allocator (pure: next address) ─► book ─► store  <dataDir>/<network>/<ip>: the truth
//!                                               └────► index  <state dir>/<hash>/: a cache
//! ```
//! Each call holds one lock from start to end.

pub mod book;
pub mod claimed;
pub mod index;
mod leases;
pub mod peek;
mod requests;
pub mod resolv;
pub mod store;

use super::host::Host;
use super::liveness::{Death, Liveness, death_of};
use super::{Ipam, Kept};
use book::{Book, also};
use braid_core::cni::netconf::is_identifier;
use braid_core::cni::{AddResult, Error, IpConfig, Kind, Owner};
pub use braid_core::ipam::host_local::HostLocalConfig;
use braid_core::ipam::range::RangeSet;
use braid_core::ipam::{Claim, Lease};
use braid_core::k8s::ipam_claim::uid_of_owner;
pub use leases::read_leases;
use peek::peek;
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use store::{Holder, LeaseFile, lease_key};

/// Folder of the index. It is on a tmpfs, as the index is useless after a reboot.
pub const STATE_DIR: &str = "/run/braid/ipam";

impl Ipam for HostLocalConfig {
    fn has_ipv6(&self) -> bool {
        self.ranges.iter().any(|set| !set.is_ipv4())
    }

    fn without_ipv6(&self) -> Option<Box<dyn Ipam>> {
        let mut config = self.clone();
        config.ranges.retain(RangeSet::is_ipv4);
        config.requested.retain(IpAddr::is_ipv4);
        config.routes.retain(|route| route.dst.addr().is_ipv4());
        if config.ranges.is_empty() {
            None
        } else {
            Some(Box::new(config))
        }
    }

    fn peek(&self, host: Host<'_>) -> Result<Lease, Error> {
        peek(self, host)
    }

    fn as_host_local(&self) -> Option<&HostLocalConfig> {
        Some(self)
    }

    /// Reserves one address from each range set.
    fn reserve(&self, owner: &Owner, host: Host<'_>) -> Result<Lease, Error> {
        reserve(self, owner, false, host)
    }

    fn reserve_claimed(
        &self,
        claim: &Claim,
        _owner: &Owner,
        host: Host<'_>,
    ) -> Result<Lease, Error> {
        claimed::reserve(self, claim, host)
    }

    fn keeps_claims(&self) -> bool {
        true
    }

    fn release(&self, owner: &Owner, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        let Some(mut book) = Book::open(&self.path(), host)? else {
            return Ok(Vec::new());
        };
        let mut key = lease_key(owner);
        let mut ips = book.owned_by(&key)?;
        if ips.is_empty() {
            // Plugins before 0.8 wrote only the container id.
            owner.container_id.trim().clone_into(&mut key);
            ips = book.owned_by(&key)?;
        }
        let (mut freed, mut errors) = (Vec::new(), Vec::new());
        for &ip in &ips {
            match book.free(ip) {
                Ok(()) => freed.push(ip),
                Err(e) => errors.push(e),
            }
        }
        if !freed.is_empty() {
            ips.retain(|ip| !freed.contains(ip));
            errors.extend(book.set_owned_by(&key, &ips).err());
        }
        book.close();
        freed_unless(errors, freed)
    }

    /// Checks that `owner` has at least one address.
    fn check(
        &self,
        owner: &Owner,
        _prev_result: Option<&AddResult>,
        host: Host<'_>,
    ) -> Result<(), Error> {
        if let Some(mut book) = Book::open_to_read(&self.path(), host.state_dir)?
            && (!book.owned_by(&lease_key(owner))?.is_empty()
                || !book.owned_by(owner.container_id.trim())?.is_empty())
        {
            return Ok(());
        }
        let id = &owner.container_id;
        Err(Error::internal(format!(
            "host-local: Failed to find address added by container {id}"
        )))
    }

    /// Frees the leases of owners outside `kept`, and broken files. Keeps leases that no plugin
    /// wrote and leases of claims. Continues after errors and reports all of them.
    fn gc(&self, kept: Kept<'_>, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        let Kept::Listed(valid) = kept else {
            let freed = reclaim(&self.path(), host)?;
            return Ok(freed.iter().map(|(lease, _)| lease.ip).collect());
        };
        let Some(mut book) = Book::open(&self.path(), host)? else {
            return Ok(Vec::new());
        };
        let (mut freed, mut errors) = (Vec::new(), Vec::new());
        // Plugins before 0.8 wrote only the container id.
        let mut keys = HashSet::new();
        for owner in valid {
            keys.insert(lease_key(owner));
            keys.insert(owner.container_id.trim().to_owned());
        }
        for lease in book.scan()? {
            if is_wanted(&lease, &keys) {
                continue;
            }
            match book.free(lease.ip) {
                Ok(()) => freed.push(lease.ip),
                Err(e) => errors.push(e),
            }
        }
        if !freed.is_empty() {
            errors.extend(book.rescan().err());
        }
        freed_unless(errors, freed)
    }

    /// Checks that leases can be written. If they cannot, returns an error with CNI code 50.
    /// Otherwise returns the message of [`full`]. A full range is not a failure, and neither is a
    /// lock that another call holds. After a failure, the runtime would mark the node as not ready,
    /// and the pods that hold the addresses would be evicted.
    fn status(&self, host: Host<'_>) -> Result<Option<String>, Error> {
        let path = self.path();
        let existing = path.ancestors().find(|p| p.exists()).unwrap_or(&path);
        store::takes_leases(existing)
            .map_err(|e| Error::not_available(format!("write to {}: {e}", existing.display())))?;
        match full(self, host) {
            Err(e) if e.kind == Kind::TryAgain => Ok(Some(e.msg)),
            found => found.map_err(|e| Error::not_available(e.to_string())),
        }
    }
}

/// Reserves one address from each range set. A claim keeps the addresses that it already has.
fn reserve(
    config: &HostLocalConfig,
    owner: &Owner,
    is_claim: bool,
    host: Host<'_>,
) -> Result<Lease, Error> {
    let dns = resolv::dns(config)?;
    let mut book = Book::open_or_create(&config.path(), host)?;
    let mut call = Reservation::new(&mut book, config, owner, host)?;
    if is_claim {
        call.keep();
    }
    let reserved = call.run();
    book.close();
    Ok(Lease {
        ips: reserved?,
        routes: config.routes.clone(),
        dns,
    })
}

/// Returns the error text of an ADD if a range set has no free address and no stale lease. Returns
/// `None` if every set has a free address or a stale lease.
pub fn full(config: &HostLocalConfig, host: Host<'_>) -> Result<Option<String>, Error> {
    let Some(mut book) = Book::open_to_read(&config.path(), host.state_dir)? else {
        return Ok(None);
    };
    for set in &config.ranges {
        if !book.has_free(set)? && !book.has_dead(set, host.liveness)? {
            return Ok(Some(requests::exhausted(set)));
        }
    }
    Ok(None)
}

/// Returns the stale leases in the data directory at `path`, each with the reason. Reads them
/// without the lock.
pub fn surely_dead(path: &Path, liveness: &dyn Liveness) -> Result<Vec<(LeaseFile, Death)>, Error> {
    let clock = liveness.clock();
    let mut dead = Vec::new();
    for lease in read_leases(path)? {
        if let Some(why) = death_of(&lease, &clock, liveness) {
            dead.push((lease, why));
        }
    }
    Ok(dead)
}

/// Frees the stale leases in the data directory at `path`. Returns these leases, each with the
/// reason.
pub fn reclaim(path: &Path, host: Host<'_>) -> Result<Vec<(LeaseFile, Death)>, Error> {
    let Some(mut book) = Book::open(path, host)? else {
        return Ok(Vec::new());
    };
    book.reclaim(|_| true, host.liveness)
}

/// Frees the leases in the data directory at `path` for which `is_theirs` returns true.
pub fn free(
    path: &Path,
    is_theirs: impl Fn(&LeaseFile) -> bool,
    host: Host<'_>,
) -> Result<(), Error> {
    if !read_leases(path)?.iter().any(&is_theirs) {
        return Ok(());
    }
    let Some(mut book) = Book::open(path, host)? else {
        return Ok(());
    };
    let mut errors: Vec<Error> = Vec::new();
    for lease in book.scan()? {
        if is_theirs(&lease) {
            errors.extend(book.free(lease.ip).err());
        }
    }
    errors.extend(book.rescan().err());
    Error::joined(&errors)
}

/// State of an ADD while it reserves addresses.
struct Reservation<'a> {
    book: &'a mut Book,
    config: &'a HostLocalConfig,
    host: Host<'a>,
    owner: &'a Owner,
    key: String,
    /// Addresses that were leased before this call. The lease files of `held` contain `key`. The
    /// lease files of `held_by_id` contain only the container id.
    held: Vec<IpAddr>,
    held_by_id: Vec<IpAddr>,
    /// Addresses that were leased to a claim before this call. The claim keeps them.
    kept: Vec<IpAddr>,
    taken: Vec<IpAddr>,
}

impl<'a> Reservation<'a> {
    fn new(
        book: &'a mut Book,
        config: &'a HostLocalConfig,
        owner: &'a Owner,
        host: Host<'a>,
    ) -> Result<Self, Error> {
        let key = lease_key(owner);
        let held = book.owned_by(&key)?;
        let held_by_id = book.owned_by(owner.container_id.trim())?;
        Ok(Self {
            book,
            config,
            host,
            owner,
            key,
            held,
            held_by_id,
            kept: Vec::new(),
            taken: Vec::new(),
        })
    }

    /// Reuses the addresses that the claim already has.
    fn keep(&mut self) {
        self.held_by_id.clear();
        self.kept = std::mem::take(&mut self.held);
    }

    /// Reserves and records the addresses. After an error, no address stays reserved.
    fn run(&mut self) -> Result<Vec<IpConfig>, Error> {
        let mut done = self.fill();
        if done.is_ok() {
            done = self.note();
        }
        match done {
            Ok(()) => Ok(self.ips()),
            Err(error) => Err(self.undo(error)),
        }
    }

    /// Reserves one address from each range set: the requested address, or the next free one.
    fn fill(&mut self) -> Result<(), Error> {
        let mut requested = self.config.requested.clone();
        for (number, set) in self.config.ranges.iter().enumerate() {
            let asked = requests::take_request(&mut requested, set);
            let mut kept = self.kept.iter().copied();
            let kept = match asked {
                Some(ip) => kept.find(|held| *held == ip),
                None => kept.find(|held| set.range_for(*held).is_some()),
            };
            let taken = match (kept, asked) {
                (Some(ip), _) => Ok(ip),
                (None, Some(ip)) => self.take_requested(number, set, ip),
                (None, None) => self.take_next(number, set),
            };
            self.taken
                .push(taken.map_err(|e| requests::in_set(number, e))?);
        }
        requests::refuse_rest(&requested)
    }

    fn take_requested(
        &mut self,
        number: usize,
        set: &RangeSet,
        ip: IpAddr,
    ) -> Result<IpAddr, Error> {
        requests::refuse_gateway(set, ip)?;
        let mut is_ours = self.book.take(ip, &self.key)?;
        if !is_ours && self.book.reclaim_one(ip, self.host.liveness)? {
            is_ours = self.book.take(ip, &self.key)?;
        }
        if !is_ours {
            return Err(requests::leased(set, ip));
        }
        if let Err(error) = self.book.mark(number, ip) {
            return Err(also(error, self.book.free(ip).err()));
        }
        Ok(ip)
    }

    fn take_next(&mut self, number: usize, set: &RangeSet) -> Result<IpAddr, Error> {
        self.refuse_second(set)?;
        if let Some(ip) = self.book.take_next(number, set, &self.key)? {
            return Ok(ip);
        }
        self.book
            .reclaim(|ip| set.range_for(ip).is_some(), self.host.liveness)?;
        let taken = self.book.take_next(number, set, &self.key)?;
        taken.ok_or_else(|| Error::no_free_address(requests::exhausted(set)))
    }

    /// Returns an error if `owner` already has an address of `set`. If the lease is stale, frees it
    /// instead: an earlier container with this id left it.
    fn refuse_second(&mut self, set: &RangeSet) -> Result<(), Error> {
        for held in [&mut self.held, &mut self.held_by_id] {
            while let Some(at) = held.iter().position(|ip| set.range_for(*ip).is_some()) {
                let ip = held[at];
                if !self.book.reclaim_one(ip, self.host.liveness)? {
                    let id = &self.owner.container_id;
                    let msg = format!(
                        "{ip} has been allocated to {id}, duplicate allocation is not allowed"
                    );
                    return Err(Error::internal(msg));
                }
                held.remove(at);
            }
        }
        Ok(())
    }

    /// Records all addresses of `key` in the index.
    fn note(&mut self) -> Result<(), Error> {
        let mut ips = [&self.held[..], &self.kept].concat();
        for ip in &self.taken {
            if !self.kept.contains(ip) {
                ips.push(*ip);
            }
        }
        self.book.set_owned_by(&self.key, &ips)
    }

    /// Releases only the addresses that this call reserved. Returns `error` combined with the
    /// errors of the release.
    fn undo(&mut self, error: Error) -> Error {
        let mut errors = Vec::new();
        for ip in std::mem::take(&mut self.taken) {
            if !self.kept.contains(&ip) {
                errors.extend(self.book.free(ip).err());
            }
        }
        errors.extend(self.note().err());
        also(error, errors)
    }

    fn ips(&self) -> Vec<IpConfig> {
        let mut ips = Vec::with_capacity(self.taken.len());
        for (set, &ip) in self.config.ranges.iter().zip(&self.taken) {
            if let Some(range) = set.range_for(ip) {
                ips.push(IpConfig {
                    address: range.with_prefix(ip),
                    gateway: range.gateway(),
                    interface: None,
                });
            }
        }
        ips
    }
}

/// True if GC keeps a lease. GC keeps a lease if its content is in `valid` or is an administrator's
/// note, or if it belongs to a claim. A claim's lease is freed when the claim is deleted, and only
/// the Kubernetes API knows of that deletion.
fn is_wanted(lease: &LeaseFile, valid: &HashSet<String>) -> bool {
    match &lease.holder {
        Holder::Broken => false,
        Holder::Other => true,
        Holder::Key(text) => {
            let id = text.split_once("\r\n").map_or(&**text, |(id, _)| id);
            !is_identifier(id) || valid.contains(text) || uid_of_owner(id).is_some()
        }
    }
}

/// Returns `freed` if there are no errors, otherwise the first error combined with the others.
fn freed_unless(errors: Vec<Error>, freed: Vec<IpAddr>) -> Result<Vec<IpAddr>, Error> {
    let mut errors = errors.into_iter();
    match errors.next() {
        None => Ok(freed),
        Some(first) => Err(also(first, errors)),
    }
}

#[cfg(test)]
mod tests;
