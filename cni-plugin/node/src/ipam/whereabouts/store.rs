//! Journals on disk: a file and a lock for each pool, below [`FOLDER`].
//!
//! ```text
//! /var/lib/braid/ipam/<hash of the pool's name>.json, .lock
//! /var/lib/braid/ipam/node.json                            name and uid of the Node
//! ```
//!
//! A file is replaced by rename, without fsync: the pool's annotation says what a journal that a power
//! cut has taken knew.

use crate::sys::{lock, private};
use braid_core::cni::Error;
use braid_core::ipam::whereabouts::api::Store;
use braid_core::ipam::whereabouts::journal::Journal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Folder of the journals. It survives a reboot, since what the node owes does.
pub const FOLDER: &str = "/var/lib/braid/ipam";
const SUFFIX: &str = "json";

/// The journal of a pool, locked.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    /// Closing it releases the lock.
    _lock: File,
}

impl JournalFile {
    /// Locks the journal of the pool with this name.
    pub fn lock(folder: &Path, pool: &str) -> Result<Self, Error> {
        let hash = Sha256::digest(pool.as_bytes());
        let name = base16ct::lower::encode_string(&hash[..8]);
        Self::open(folder.join(name).with_extension(SUFFIX))
    }

    fn open(path: PathBuf) -> Result<Self, Error> {
        let at = path.with_extension("lock");
        let open = || private::options().append(true).create(true).open(&at);
        let file = match open() {
            Err(err) if err.kind() == ErrorKind::NotFound => {
                let folder = path.parent().unwrap_or(Path::new("/"));
                private::make_folders(folder).and_then(|()| open())
            }
            opened => opened,
        };
        let locked = file.and_then(|file| lock::wait(&file).map(|()| file));
        let lock = locked.map_err(|err| Error::io(format!("lock {}: {err}", at.display())))?;
        Ok(Self { path, _lock: lock })
    }
}

impl Store for JournalFile {
    fn read(&mut self) -> Result<Journal, Error> {
        Ok(read(&self.path)?.unwrap_or_default())
    }

    fn write(&mut self, journal: &Journal) -> Result<(), Error> {
        write(&self.path, journal)
    }
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

    #[test]
    fn a_journal_is_read_back_and_a_damaged_one_is_empty() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("ipam");
        assert_eq!(journals(&folder), Ok(Vec::new()));
        let mut file = JournalFile::lock(&folder, "10.0.0.0-24").expect("a lock");
        assert_eq!(file.read(), Ok(Journal::default()));
        let journal = Journal {
            taken: [5, u128::from(u64::MAX) + 1].into(),
            ..Journal::default()
        };
        file.write(&journal).expect("written");
        write(&node(&folder), &"n1").expect("written");
        let paths = journals(&folder).expect("a list");
        assert_eq!(paths.len(), 1);
        assert_eq!(peek(&paths[0]), Ok(journal));
        fs::write(&paths[0], "{\"own\": {").expect("written");
        assert_eq!(file.read(), Ok(Journal::default()));
    }
}
