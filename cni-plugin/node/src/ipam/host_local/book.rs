//! Leases of one network, under the lock of its data directory. The lease files are authoritative,
//! and the index is a cache of them.
//!
//! Each change is made to the files first, which breaks the index's seal. So after a crash the next
//! call scans the files, and no address is lost. [`Book::close`] seals the index again. If the
//! index cannot be written (a full `/run`), lookups scan the files. A broken seal means that
//! another program changed the files, perhaps deleting leases of running containers. Those leases
//! are restored.

use super::index::Index;
use super::store::{Holder, LeaseFile, Store, lease_key};
use crate::ipam::host::Host;
use crate::ipam::liveness::{Clock, Death, Liveness, Recorded, death_of};
use braid_core::cni::error::{Error, passes};
use braid_core::ipam::host_local::allocator::{Span, spans};
use braid_core::ipam::range::{RangeSet, from_bits, to_bits};
use std::collections::HashSet;
use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

/// The open, locked data directory of one network, with its leases.
#[derive(Debug)]
pub struct Book {
    store: Store,
    view: View,
    changed: bool,
    /// Addresses without a lease file that this call must not assign.
    avoided: Vec<IpAddr>,
}

/// Source of lookups: the index, or the result of a scan of the files.
#[derive(Debug)]
enum View {
    Index(Index),
    Scan(Vec<LeaseFile>),
}

impl Book {
    /// Opens the data directory at `path`; `None` if it does not exist.
    pub fn open(path: &Path, host: Host<'_>) -> Result<Option<Self>, Error> {
        let Some(store) = Store::open(path).map_err(|e| failed("open", path.display(), &e))? else {
            return Ok(None);
        };
        Ok(Some(Self::of(store, host)?))
    }

    /// Opens the data directory at `path`; creates it if missing.
    pub fn open_or_create(path: &Path, host: Host<'_>) -> Result<Self, Error> {
        let store = Store::open_or_create(path).map_err(|e| failed("open", path.display(), &e))?;
        Self::of(store, host)
    }

    /// Opens the data directory for reading only: restores no lease and builds no index. Returns
    /// `None` if the directory does not exist.
    pub fn open_to_read(path: &Path, state_dir: &Path) -> Result<Option<Self>, Error> {
        let Some(store) = Store::open(path).map_err(|e| failed("open", path.display(), &e))? else {
            return Ok(None);
        };
        let view = match index_of(&store, state_dir) {
            Ok((index, true)) => View::Index(index),
            _ => View::Scan(scan(&store)?),
        };
        Ok(Some(Self::new(store, view)))
    }

    fn of(store: Store, host: Host<'_>) -> Result<Self, Error> {
        let (view, is_sealed) = match index_of(&store, host.state_dir) {
            Ok((index, is_sealed)) => (View::Index(index), is_sealed),
            Err(_) => (View::Scan(Vec::new()), false),
        };
        let mut book = Self::new(store, view);
        if !is_sealed {
            book.restore(host.liveness);
            book.rescan()?;
        }
        Ok(book)
    }

    fn new(store: Store, view: View) -> Self {
        Self {
            store,
            view,
            changed: false,
            avoided: Vec::new(),
        }
    }

    /// Writes the missing lease files that the host's attachment records list. Writes no file for
    /// an owner that another call is processing, since that call may be about to release the
    /// address. If an address has no file afterwards, this call avoids the address, and the index
    /// stays unsealed.
    fn restore(&mut self, liveness: &dyn Liveness) {
        let is_missing = |ip| matches!(self.store.read(ip), Ok(None));
        for Recorded { ip, owner, is_idle } in liveness.recorded(self.store.path(), &is_missing) {
            if !is_idle || self.store.create(ip, &lease_key(&owner)).is_err() {
                self.avoided.push(ip);
            }
        }
    }

    /// Seals the index if this call changed a lease, and unlocks the data directory.
    pub fn close(self) {
        if self.changed {
            self.seal();
        }
    }

    /// Reads every lease from the files.
    pub fn scan(&self) -> Result<Vec<LeaseFile>, Error> {
        scan(&self.store)
    }

    /// Reads every lease from the files and rebuilds the index.
    pub fn rescan(&mut self) -> Result<Vec<LeaseFile>, Error> {
        let mut leases = self.scan()?;
        for &ip in &self.avoided {
            leases.push(LeaseFile {
                ip,
                holder: Holder::Other,
                written: SystemTime::now(),
            });
        }
        let rebuilt = if let View::Index(index) = &mut self.view {
            index.rebuild(&leases).is_ok()
        } else {
            false
        };
        if rebuilt {
            self.seal();
        } else {
            self.view = View::Scan(leases.clone());
        }
        Ok(leases)
    }

    /// Returns the addresses with a lease file that has the content `key`. Each file is read to verify
    /// this.
    pub fn owned_by(&mut self, key: &str) -> Result<Vec<IpAddr>, Error> {
        let leases = match &self.view {
            View::Scan(leases) => leases.clone(),
            View::Index(index) => {
                if let Ok(Some(ips)) = index.owned_by(key)
                    && ips.iter().all(|ip| self.is_held(*ip, key))
                {
                    return Ok(ips);
                }
                self.rescan()?
            }
        };
        let mut ips = Vec::new();
        for lease in &leases {
            if matches!(&lease.holder, Holder::Key(held) if held == key) {
                ips.push(lease.ip);
            }
        }
        Ok(ips)
    }

    /// Records in the index that the lease files of the addresses `ips` have the content `key`.
    pub fn set_owned_by(&mut self, key: &str, ips: &[IpAddr]) -> Result<(), Error> {
        self.update(|index| index.set_owned_by(key, ips), |_| {})
    }

    /// Leases `ip` by a lease file with the content `key`. Returns false if `ip` is already leased.
    pub fn take(&mut self, ip: IpAddr, key: &str) -> Result<bool, Error> {
        if self.avoided.contains(&ip) {
            return Ok(false);
        }
        let taken = self
            .store
            .create(ip, key)
            .map_err(|e| self.failed("create lease", ip, &e))?;
        if taken {
            self.changed = true;
            let lease = || LeaseFile {
                ip,
                holder: Holder::Key(key.to_owned()),
                written: SystemTime::now(),
            };
            self.update(
                |index| index.set_taken(ip, true),
                |leases| leases.push(lease()),
            )?;
        }
        Ok(taken)
    }

    /// Leases the next free address of range set `number`. The search starts after the last
    /// assigned address. The lease file has the content `key`. Returns `None` if no address is
    /// free.
    pub fn take_next(
        &mut self,
        number: usize,
        set: &RangeSet,
        key: &str,
    ) -> Result<Option<IpAddr>, Error> {
        let mark = self
            .store
            .last_reserved(number)
            .map_err(|e| self.failed("read last_reserved_ip", number, &e))?;
        let Some(ip) = self.take_first(&spans(set, mark.ip), set.is_ipv4(), key)? else {
            return Ok(None);
        };
        if let Err(e) = self.store.set_last_reserved(number, mark, ip) {
            let error = self.failed("write last_reserved_ip", number, &e);
            return Err(also(error, self.free(ip).err()));
        }
        self.changed = true;
        Ok(Some(ip))
    }

    /// Sets the last assigned address of range set `number` to a requested address.
    pub fn mark(&mut self, number: usize, ip: IpAddr) -> Result<(), Error> {
        let failed = |e: io::Error| self.failed("write last_reserved_ip", number, &e);
        let mark = self.store.last_reserved(number).map_err(failed)?;
        let moved = self.store.set_last_reserved(number, mark, ip);
        moved.map_err(failed)
    }

    /// True if `set` has a free address.
    pub fn has_free(&mut self, set: &RangeSet) -> Result<bool, Error> {
        for span in spans(set, None) {
            if self.next_free(span, set.is_ipv4())?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Frees `ip`. A missing lease is a success.
    pub fn free(&mut self, ip: IpAddr) -> Result<(), Error> {
        self.store
            .remove(ip)
            .map_err(|e| self.failed("remove lease", ip, &e))?;
        self.changed = true;
        self.update(
            |index| index.set_taken(ip, false),
            |leases| leases.retain(|lease| lease.ip != ip),
        )
    }

    /// Frees the stale leases of addresses for which `is_asked` returns true. Returns these leases,
    /// each with the reason.
    pub fn reclaim(
        &mut self,
        is_asked: impl Fn(IpAddr) -> bool,
        liveness: &dyn Liveness,
    ) -> Result<Vec<(LeaseFile, Death)>, Error> {
        let (leases, clock) = (self.scan()?, liveness.clock());
        let mut freed = Vec::new();
        for lease in leases {
            if is_asked(lease.ip)
                && let Some(why) = self.free_if_dead(&lease, &clock, liveness)?
            {
                freed.push((lease, why));
            }
        }
        // The index is rebuilt even if nothing was freed: it may have marked a free address as
        // leased.
        self.rescan()?;
        Ok(freed)
    }

    /// Frees `ip` if its lease is stale. Returns true if `ip` is free afterwards.
    pub fn reclaim_one(&mut self, ip: IpAddr, liveness: &dyn Liveness) -> Result<bool, Error> {
        let read = self.store.read(ip);
        let Some(lease) = read.map_err(|e| self.failed("read lease", ip, &e))? else {
            return Ok(true);
        };
        let death = self.free_if_dead(&lease, &liveness.clock(), liveness)?;
        Ok(death.is_some())
    }

    /// True if `set` has a stale lease.
    pub fn has_dead(&self, set: &RangeSet, liveness: &dyn Liveness) -> Result<bool, Error> {
        let clock = liveness.clock();
        for lease in self.scan()? {
            let is_in_set = set.range_for(lease.ip).is_some();
            if is_in_set && death_of(&lease, &clock, liveness).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn free_if_dead(
        &mut self,
        lease: &LeaseFile,
        clock: &Clock,
        liveness: &dyn Liveness,
    ) -> Result<Option<Death>, Error> {
        let Some(why) = death_of(lease, clock, liveness) else {
            return Ok(None);
        };
        self.free(lease.ip)?;
        liveness.reclaimed(lease, why);
        Ok(Some(why))
    }

    fn take_first(
        &mut self,
        spans: &[Span],
        is_ipv4: bool,
        key: &str,
    ) -> Result<Option<IpAddr>, Error> {
        let mut rescanned = false;
        for &Span { mut first, last } in spans {
            while let Some(free) = self.next_free(Span { first, last }, is_ipv4)? {
                let ip = from_bits(free, is_ipv4);
                if self.take(ip, key)? {
                    return Ok(Some(ip));
                }
                // The lease file decides, so the index is wrong. If it was just rebuilt, another
                // program writes to the directory without the lock.
                first = if rescanned { free + 1 } else { first };
                if first > last {
                    break;
                }
                if !rescanned {
                    self.rescan()?;
                    rescanned = true;
                }
            }
        }
        Ok(None)
    }

    fn next_free(&mut self, span: Span, is_ipv4: bool) -> Result<Option<u128>, Error> {
        if let View::Index(index) = &mut self.view {
            if let Ok(found) = index.next_free(span, is_ipv4) {
                return Ok(found);
            }
            self.view = View::Scan(self.scan()?);
        }
        let View::Scan(leases) = &self.view else {
            return Ok(None);
        };
        let mut taken = HashSet::new();
        for lease in leases {
            if lease.ip.is_ipv4() == is_ipv4 {
                taken.insert(to_bits(lease.ip));
            }
        }
        Ok((span.first..=span.last).find(|bits| !taken.contains(bits)))
    }

    /// After a change of the files, makes the same change in the index or in the scanned leases. If
    /// the index cannot be written, this call continues with a scan.
    fn update(
        &mut self,
        in_index: impl FnOnce(&mut Index) -> io::Result<()>,
        in_scan: impl FnOnce(&mut Vec<LeaseFile>),
    ) -> Result<(), Error> {
        match &mut self.view {
            View::Scan(leases) => in_scan(leases),
            View::Index(index) => {
                if in_index(index).is_err() {
                    self.view = View::Scan(self.scan()?);
                }
            }
        }
        Ok(())
    }

    fn is_held(&self, ip: IpAddr, key: &str) -> bool {
        matches!(self.store.read(ip), Ok(Some(LeaseFile { holder: Holder::Key(k), .. })) if k == key)
    }

    /// Seals the index. If that fails, or if addresses are avoided, the next call rebuilds the
    /// index.
    fn seal(&self) {
        if let View::Index(index) = &self.view
            && self.avoided.is_empty()
            && let Ok(time) = self.store.set_changed()
        {
            let _sealed = index.seal(time);
        }
    }

    fn failed(&self, what: &str, which: impl Display, e: &io::Error) -> Error {
        failed(
            what,
            format_args!("{which} in {}", self.store.path().display()),
            e,
        )
    }
}

/// Returns the index of a data directory, and true if it is sealed.
fn index_of(store: &Store, state_dir: &Path) -> io::Result<(Index, bool)> {
    let changed = store.changed()?;
    let index = Index::open(state_dir, store.path())?;
    let is_sealed = index.is_sealed(changed)?;
    Ok((index, is_sealed))
}

fn scan(store: &Store) -> Result<Vec<LeaseFile>, Error> {
    store
        .scan()
        .map_err(|e| failed("read leases of", store.path().display(), &e))
}

fn failed(what: &str, which: impl Display, e: &io::Error) -> Error {
    Error::because(format!("{what} {which}: {e}"), passes(e.kind()))
}

/// Returns `error` combined with the errors of the cleanup after it.
pub fn also(error: Error, cleanup: impl IntoIterator<Item = Error>) -> Error {
    error.and_cleanup(&cleanup.into_iter().collect::<Vec<_>>())
}
