//! Lease files beside the daemon's socket. A file has all data needed to continue or release a
//! lease after the daemon has stopped. Like the links, the files are valid only during this boot.

use super::link::{ContainerLink, Fixed};
use crate::sys::boot;
use crate::sys::netns::NetNsError;
use base16ct::lower::encode_string;
use braid_core::cni::{NetConf, Owner};
use braid_core::ipam::dhcp::session::{Held, Link};
use braid_core::ipam::dhcp::timing::{Dice, Limits};
use braid_core::ipam::dhcp::{DhcpConfig, Session};
use braid_core::name::Mac;
use braid_core::plugins::readdress::Routing;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Folder with the lease files of a daemon.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

/// A stored lease, with the data needed to continue it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Owner of the lease.
    pub owner: Owner,
    /// Path of the container's network namespace, as this process reaches it.
    pub netns: PathBuf,
    /// Cookie of the container's network namespace, unique since boot; `None` before Linux 5.14.
    pub cookie: Option<u64>,
    /// Inode of the container's network namespace, for kernels without the cookie; absent in files
    /// of earlier versions.
    #[serde(default)]
    pub inode: Option<u64>,
    /// Interface index of the link.
    pub index: u32,
    /// Hardware address by which servers know the client: the link's address when the lease was
    /// acquired.
    pub mac: Mac,
    /// Properties of the link that do not change; absent in files of earlier versions.
    #[serde(default)]
    pub fixed: Option<Fixed>,
    /// `CNI_ARGS`.
    pub args: String,
    /// The network configuration, JSON.
    pub conf: String,
    /// Id of the boot that all times in this file refer to.
    pub boot_id: String,
    /// The leases, at most one for each address family.
    pub held: Held,
    /// Routes and rules of expired addresses. They are added again with the addresses that replace
    /// the expired ones. Absent in files of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Routing>,
}

/// State of the lock that a running daemon holds.
#[derive(Debug)]
pub enum Locked {
    /// The folder is missing, so no daemon of braid ran here.
    Nothing,
    /// The caller holds the lock until this file is closed.
    Held(File),
    /// Another process holds the lock. The file can be used to wait for it.
    Others(File),
}

impl Store {
    /// Returns the folder with the leases of the daemon at `socket`.
    pub fn of(socket: &Path) -> Self {
        Self {
            dir: socket.with_extension("leases"),
        }
    }

    /// Returns the folder's path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates the folder (0700) and locks it until the returned file is closed. Waits up to 10 s
    /// for another call's lock.
    pub fn lock(&self) -> io::Result<File> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)?;
        let file = File::options()
            .append(true)
            .create(true)
            .open(self.dir.join("lock"))?;
        crate::sys::lock::wait_for(&file, 10)?;
        Ok(file)
    }

    /// Locks the folder, without waiting for another process's lock.
    pub fn try_lock(&self) -> io::Result<Locked> {
        match File::options().append(true).open(self.dir.join("lock")) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Locked::Nothing),
            Err(err) => Err(err),
            Ok(file) => match file.try_lock() {
                Ok(()) => Ok(Locked::Held(file)),
                Err(TryLockError::WouldBlock) => Ok(Locked::Others(file)),
                Err(TryLockError::Error(err)) => Err(err),
            },
        }
    }

    /// Returns the lease of an owner; `None` if it has no readable file.
    pub fn get(&self, owner: &Owner) -> Option<Stored> {
        let stored = read(&self.path(owner))?;
        (stored.owner == *owner).then_some(stored)
    }

    /// Returns all leases of this boot.
    pub fn list(&self) -> Vec<Stored> {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return Vec::new();
        };
        let boot_id = boot_id();
        let mut leases = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            if let Some(stored) = read(&path)
                && stored.boot_id == boot_id
            {
                leases.push(stored);
            }
        }
        leases
    }

    /// Writes a lease, replacing an earlier one of its owner.
    pub fn put(&self, stored: &Stored) -> io::Result<()> {
        let path = self.path(&stored.owner);
        let new = path.with_extension("new");
        let bytes = serde_json::to_vec(stored).map_err(io::Error::from)?;
        File::create(&new)?.write_all(&bytes)?;
        fs::rename(&new, &path)
    }

    /// Deletes the lease of an owner. A missing lease is a success.
    pub fn remove(&self, owner: &Owner) -> io::Result<()> {
        match fs::remove_file(self.path(owner)) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
            _ => Ok(()),
        }
    }

    fn path(&self, owner: &Owner) -> PathBuf {
        let digest = Sha256::digest(owner.whole().as_bytes());
        self.dir
            .join(format!("{}.json", encode_string(&digest[..16])))
    }
}

fn read(path: &Path) -> Option<Stored> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Returns the id of this boot, to which the times in lease files refer.
pub fn boot_id() -> String {
    boot::id().unwrap_or_default()
}

impl Stored {
    /// Returns a session that continues the leases; `None` if the configuration is no longer valid.
    pub fn session(&self, broadcast: bool, limits: Limits, rng: Dice<'_>) -> Option<Session> {
        let config = self.config()?;
        let link = Link {
            owner: &self.owner,
            mac: self.mac,
            broadcast,
        };
        Some(Session::new(
            &config,
            link,
            self.held.clone(),
            (limits, crate::sys::events::now()),
            rng,
        ))
    }

    /// Parses the stored network configuration; `None` if it is no longer valid.
    pub fn config(&self) -> Option<DhcpConfig> {
        DhcpConfig::parse(&NetConf::parse(self.conf.as_bytes()).ok()?, &self.args).ok()
    }

    /// Looks up the link of the lease. Returns `None` if the link or its namespace is gone or was
    /// replaced.
    pub fn place(&self) -> Option<Result<ContainerLink, NetNsError>> {
        match ContainerLink::at(&self.netns, self.index) {
            Ok(Some(place)) if self.is_of(&place) => Some(Ok(place)),
            Ok(_) => None,
            Err(err) => Some(Err(err)),
        }
    }

    /// True if the lease belongs to this link. The container may have changed the link's name and
    /// hardware address.
    pub fn is_of(&self, place: &ContainerLink) -> bool {
        let is_of_netns = match (self.cookie, self.inode) {
            (Some(_), _) => place.cookie == self.cookie,
            (None, inode) => inode.is_none_or(|inode| place.inode == inode),
        };
        is_of_netns
            && place.link.index == self.index
            && self
                .fixed
                .as_ref()
                .is_none_or(|fixed| *fixed == place.link.fixed)
    }

    /// Returns the leased addresses.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut ips = Vec::new();
        if let Some(lease) = &self.held.v4 {
            ips.push(lease.address.into());
        }
        if let Some(lease) = &self.held.v6 {
            ips.push(lease.address.into());
        }
        ips
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn stored(container_id: &str) -> Stored {
        Stored {
            owner: Owner::new("n", container_id, "eth0"),
            netns: "/run/netns/a".into(),
            cookie: Some(7),
            inode: Some(9),
            index: 2,
            mac: Mac([2; 6]),
            fixed: Some(Fixed {
                kind: "macvlan".to_owned(),
                permanent: None,
            }),
            args: String::new(),
            conf: r#"{"name":"n","ipam":{"type":"dhcp"}}"#.to_owned(),
            boot_id: boot_id(),
            held: Held::default(),
            lost: Vec::new(),
        }
    }

    #[test]
    fn a_lease_is_read_back_until_it_is_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Store::of(&dir.path().join("dhcp.sock"));
        let lock = store.lock().expect("locked");
        for id in ["a", "b"] {
            store.put(&stored(id)).expect("kept");
        }
        assert_eq!(store.get(&stored("a").owner), Some(stored("a")));
        let mode = fs::metadata(store.dir())
            .expect("the folder")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700, "configurations may hold secrets");
        store.remove(&stored("a").owner).expect("removed");
        store.remove(&stored("a").owner).expect("removed twice");
        assert_eq!(store.list(), [stored("b")]);
        store
            .put(&Stored {
                boot_id: "another".to_owned(),
                ..stored("b")
            })
            .expect("kept");
        assert_eq!(store.list(), [], "it is of another boot");
        drop(lock);
    }

    #[test]
    fn a_file_of_an_earlier_version_is_read() {
        let mut json = serde_json::to_value(stored("a")).expect("json");
        for field in ["inode", "fixed"] {
            json.as_object_mut()
                .expect("an object")
                .remove(field)
                .expect("a field");
        }
        let read: Stored = serde_json::from_value(json).expect("a lease");
        assert_eq!(
            read,
            Stored {
                inode: None,
                fixed: None,
                ..stored("a")
            }
        );
    }

    #[test]
    fn lock_state_shows_if_a_daemon_runs() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Store::of(&dir.path().join("dhcp.sock"));
        assert!(matches!(store.try_lock(), Ok(Locked::Nothing)));
        let lock = store.lock().expect("locked");
        assert!(matches!(store.try_lock(), Ok(Locked::Others(_))));
        drop(lock);
        // A child that another test forks now also holds the lock, until its `exec`.
        let file = File::open(store.dir().join("lock")).expect("a lock");
        file.lock().expect("locked");
        drop(file);
        assert!(matches!(store.try_lock(), Ok(Locked::Held(_))));
    }
}
