//! Journals on disk: a file and a lock for each pool, below [`FOLDER`].
//!
//! ```text
//! /var/lib/braid/ipam/<hash of the pool's name>.json       journal
//! /var/lib/braid/ipam/<hash of the pool's name>.lock       lock for requests about the pool
//! /var/lib/braid/ipam/<hash of the pool's name>.step       lock for one step of the journal
//! /var/lib/braid/ipam/<hash of the pool's name>.agent      locked while an agent pays the debts
//! /var/lib/braid/ipam/node.json, .lock                     name and uid of the Node, lock of its writers
//! ```
//!
//! A file is replaced by rename, without fsync: after a power cut, the pool's annotation has the
//! addresses of a lost journal.

use crate::sys::{lock, private};
use braid_core::cni::Error;
use braid_core::ipam::whereabouts::api::Store;
use braid_core::ipam::whereabouts::journal::Journal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Folder of the journals. It survives a reboot, as debts do.
pub const FOLDER: &str = "/var/lib/braid/ipam";
const SUFFIX: &str = "json";
/// Ending of the file that the agent locks.
const AGENT: &str = "agent";

/// The journal of a pool.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    /// The lock for requests. Closing it releases it.
    _requests: Option<File>,
}

impl JournalFile {
    /// Locks the requests about the pool with this name.
    pub fn lock(folder: &Path, pool: &str) -> Result<Self, Error> {
        let file = Self::of(folder, pool);
        let requests = locked(&file.path.with_extension("lock"))?;
        Ok(Self {
            _requests: Some(requests),
            ..file
        })
    }

    /// Locks the requests about the pool with this name, if no other call has the lock.
    pub fn try_lock(folder: &Path, pool: &str) -> Result<Option<Self>, Error> {
        let file = Self::of(folder, pool);
        let path = file.path.with_extension("lock");
        let requests = open(&path)?;
        match requests.try_lock() {
            Ok(()) => Ok(Some(Self {
                _requests: Some(requests),
                ..file
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(err)) => Err(not_locked(&path, &err)),
        }
    }

    /// Locks the requests about the pool with this name, or fails at the time `until`.
    pub fn lock_until(folder: &Path, pool: &str, until: Instant) -> Result<Self, Error> {
        let file = Self::of(folder, pool);
        let path = file.path.with_extension("lock");
        let requests = open(&path)?;
        let locked = lock::wait_until(&requests, until);
        locked.map_err(|err| not_locked(&path, &err))?;
        Ok(Self {
            _requests: Some(requests),
            ..file
        })
    }

    /// Returns the journal of the pool with this name, for steps without requests.
    pub fn of(folder: &Path, pool: &str) -> Self {
        let hash = Sha256::digest(pool.as_bytes());
        let name = base16ct::lower::encode_string(&hash[..8]);
        Self::at(&folder.join(name).with_extension(SUFFIX))
    }

    /// Returns the journal of this path for steps without requests.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            _requests: None,
        }
    }
}

/// Locks a file, and makes it and its folder first.
pub fn locked(path: &Path) -> Result<File, Error> {
    let file = open(path)?;
    let locked = lock::wait(&file);
    locked.map_err(|err| not_locked(path, &err))?;
    Ok(file)
}

/// Opens a file to lock it, and makes it and its folder first.
fn open(path: &Path) -> Result<File, Error> {
    let open = || private::options().append(true).create(true).open(path);
    let file = match open() {
        Err(err) if err.kind() == ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(Path::new("/"));
            private::make_folders(folder).and_then(|()| open())
        }
        opened => opened,
    };
    file.map_err(|err| not_locked(path, &err))
}

fn not_locked(path: &Path, err: &io::Error) -> Error {
    Error::io(format!("lock {}: {err}", path.display()))
}

impl Store for JournalFile {
    fn update(&mut self, change: &mut dyn FnMut(&mut Journal)) -> Result<Journal, Error> {
        let _step = locked(&self.path.with_extension("step"))?;
        let before: Journal = read(&self.path)?.unwrap_or_default();
        let mut journal = before.clone();
        change(&mut journal);
        if journal != before {
            write(&self.path, &journal)?;
        }
        Ok(journal)
    }
}

/// Says that an agent pays the debts of a journal, as long as the returned file is open.
pub fn be_agent(journal: &Path) -> Result<File, Error> {
    locked(&journal.with_extension(AGENT))
}

/// True if an agent pays the debts of the pool with this name.
pub fn has_agent(folder: &Path, pool: &str) -> bool {
    let opened = File::open(JournalFile::of(folder, pool).path.with_extension(AGENT));
    opened.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Returns the paths of all journals.
pub fn journals(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut paths = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(paths),
        entries => entries.map_err(|err| Error::io(format!("read {}: {err}", folder.display())))?,
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_journal = path.extension().is_some_and(|it| it == SUFFIX);
        if is_journal && path.file_stem().is_some_and(|stem| stem != NODE) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Reads a journal without its lock: it is replaced as a whole.
pub fn peek(path: &Path) -> Result<Journal, Error> {
    Ok(read(path)?.unwrap_or_default())
}

/// Returns the names of the pools with addresses or debts of this node, from its journals.
pub fn pools_in_use(folder: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for path in journals(folder)? {
        let journal = peek(&path)?;
        if !journal.own.is_empty() || !journal.sought.is_empty() {
            names.extend(journal.place.map(|place| place.name));
        }
    }
    Ok(names)
}

/// Stem of the file with the Node's identity.
const NODE: &str = "node";

/// Returns the path of the file with the Node's identity.
pub fn node(folder: &Path) -> PathBuf {
    folder.join(NODE).with_extension(SUFFIX)
}

/// Reads a file; `None` if it is missing, or if a power cut has left it incomplete.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    match fs::read(path) {
        Err(err) if err.kind() == ErrorKind::NotFound => Ok(None),
        Err(err) => Err(Error::io(format!("read {}: {err}", path.display()))),
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
    }
}

/// Replaces a file.
pub fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), Error> {
    let written = || -> io::Result<()> {
        let temporary = path.with_extension("new");
        private::write(&temporary, &serde_json::to_vec(value)?)?;
        fs::rename(&temporary, path)
    };
    written().map_err(|err| Error::io(format!("write {}: {err}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::ipam::whereabouts::journal::{Own, Place};

    #[test]
    fn a_journal_is_read_back_and_a_damaged_one_is_empty() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("ipam");
        assert_eq!(journals(&folder), Ok(Vec::new()));
        let mut file = JournalFile::lock(&folder, "10.0.0.0-24").expect("a lock");
        assert_eq!(file.update(&mut |_| {}), Ok(Journal::default()));
        let journal = Journal {
            taken: [5, u128::from(u64::MAX) + 1].into(),
            ..Journal::default()
        };
        let written = file.update(&mut |it| it.clone_from(&journal));
        assert_eq!(written, Ok(journal.clone()));
        write(&node(&folder), &"n1").expect("written");
        let paths = journals(&folder).expect("a list");
        assert_eq!(paths.len(), 1);
        assert_eq!(peek(&paths[0]), Ok(journal));
        fs::write(&paths[0], "{\"own\": {").expect("written");
        let damaged = JournalFile::at(&paths[0]).update(&mut |_| {});
        assert_eq!(damaged, Ok(Journal::default()));
    }

    #[test]
    fn pools_are_in_use_by_addresses_and_by_what_is_looked_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("ipam");
        assert_eq!(pools_in_use(&folder), Ok(Vec::new()));
        let place = |name: &str| Place {
            name: name.to_owned(),
            net: "10.1.0.0/24".parse().expect("a range"),
            network: String::new(),
            has_reservations: true,
            kubeconfig: PathBuf::from("/k"),
        };
        for name in ["free", "own", "sought"] {
            let mut file = JournalFile::lock(&folder, name).expect("a lock");
            let written = file.update(&mut |it| {
                it.place = Some(place(name));
                if name == "own" {
                    it.own.insert(5, Own::default());
                }
                if name == "sought" {
                    it.sought.insert(("c1".to_owned(), "net1".to_owned()));
                }
            });
            written.expect("written");
        }
        let mut pools = pools_in_use(&folder).expect("a list");
        pools.sort_unstable();
        assert_eq!(pools, ["own", "sought"]);
    }
}
