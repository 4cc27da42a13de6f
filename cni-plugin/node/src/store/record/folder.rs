//! Folder and lock of a container's records.

use super::{Key, ROOT, Record, foreign, list};
use crate::apply::within;
use crate::store::root::{NODE, Root};
use crate::sys::lock::{wait, wait_for};
use crate::sys::private;
use crate::{Context, Error};
use base16ct::lower::encode_string;
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Longest part of a file name, in bytes, that is stored unhashed. The kernel limits the whole file
/// name to 255 bytes.
const READABLE_LEN: usize = 100;
/// Prefix of a hashed name.
const DIGEST: &str = "sha256-";

/// The folder with a container's records, locked. Only one call at a time holds the lock, together
/// with the plugin calls that it starts.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The container's folder of [`foreign`] records, which this lock protects as well.
    foreign: PathBuf,
    /// The opened folder. It is locked until this file is closed, unless the parent call holds the
    /// lock.
    _lock: File,
    is_within: bool,
    /// True if this call created the folder.
    is_new: bool,
    /// True if drop has nothing to do: the folder has a record of this call, or was removed.
    is_settled: Cell<bool>,
}

impl Folder {
    /// Locks the container's folder. Creates it if it is missing.
    pub fn lock(container_id: &str) -> Result<Self, Error> {
        Self::lock_in(&NODE, container_id)
    }

    /// [`Folder::lock`] for a machine with the root folder `root`.
    pub fn lock_in(root: &Root, container_id: &str) -> Result<Self, Error> {
        Self::lock_by(root, container_id, wait)
    }

    /// [`Folder::lock`] with a timeout in seconds.
    pub fn lock_within(container_id: &str, seconds: u32) -> Result<Self, Error> {
        Self::lock_by(&NODE, container_id, |file| wait_for(file, seconds))
    }

    /// [`Folder::lock_in`] without waiting; an error if another call is processing the container.
    pub(super) fn try_lock_in(root: &Root, container_id: &str) -> Result<Self, Error> {
        Self::lock_by(
            root,
            container_id,
            |_| Err(io::ErrorKind::WouldBlock.into()),
        )
    }

    fn lock_by(
        root: &Root,
        container_id: &str,
        wait: impl Fn(&File) -> io::Result<()>,
    ) -> Result<Self, Error> {
        let name = part_name(container_id);
        let [path, foreign] = [ROOT, foreign::ROOT].map(|folder| root.at(folder).join(&name));
        let fail = |err: io::Error| Error::new(format!("lock {}", path.display()), err);
        let may_be_within = within::holds(container_id);
        loop {
            let is_new = make(&path).map_err(fail)?;
            match lock(&path, may_be_within, &wait) {
                Ok(Some((lock, is_within))) => {
                    return Ok(Self {
                        path,
                        foreign,
                        _lock: lock,
                        is_within,
                        is_new,
                        is_settled: Cell::new(false),
                    });
                }
                Ok(None) => {}
                Err(err) => {
                    if is_new {
                        let _ = fs::remove_dir(&path);
                    }
                    return Err(fail(err));
                }
            }
        }
    }

    /// Returns the path of a call's record, which may be missing.
    pub fn file(&self, key: &Key) -> PathBuf {
        self.path.join(file_name(key))
    }

    /// True if this call created the folder, so there is no ordinary record of an earlier call.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Loads the record of a call; `None` if it is missing, truncated or of an unknown layout.
    pub fn load(&self, key: &Key) -> Result<Option<Record>, Error> {
        list::load(&self.file(key))
    }

    /// Loads the ordinary record of a call, or the [`foreign`] record if the ordinary one is
    /// missing or damaged.
    pub fn load_left(&self, key: &Key) -> Result<Option<Record>, Error> {
        match self.load(key)? {
            None => self.load_foreign(key),
            loaded => Ok(loaded),
        }
    }

    /// Loads the [`foreign`] record of a call.
    pub fn load_foreign(&self, key: &Key) -> Result<Option<Record>, Error> {
        foreign::load(&self.foreign.join(file_name(key)))
    }

    /// True if a record of the call exists, readable or not.
    pub fn has_file(&self, key: &Key) -> bool {
        let name = file_name(key);
        [&self.path, &self.foreign]
            .iter()
            .any(|folder| folder.join(&name).exists())
    }

    /// Returns all readable records of the container, without the [`foreign`] ones.
    pub fn records(&self) -> Result<Vec<Record>, Error> {
        let files =
            list::records_in(&self.path).doing(format_args!("list {}", self.path.display()))?;
        let mut records = Vec::new();
        for path in files {
            records.extend(list::load(&path)?);
        }
        Ok(records)
    }

    /// Returns the records with the interface and network of `key`, but with another plugin type.
    pub fn others(&self, key: &Key) -> Result<Vec<Record>, Error> {
        let mut records = self.records()?;
        records.retain(|record| record.key.owner == key.owner && record.key != *key);
        Ok(records)
    }

    /// Ends a deletion. Deletes the record if `errors` is empty. Otherwise stores `left`, the part
    /// of the record that is still to be deleted. Returns all errors.
    pub fn settle<E: From<Error>>(
        &self,
        key: &Key,
        left: Option<&Record>,
        mut errors: Vec<E>,
    ) -> Vec<E> {
        let settled = match left {
            _ if errors.is_empty() => self.remove(key, left.is_none_or(|left| left.is_foreign)),
            Some(record) => self.store(record),
            None => Ok(()),
        };
        errors.extend(settled.err().map(E::from));
        errors
    }

    /// Writes a record atomically. Writes the [`foreign`] record too if `is_foreign` is set in the
    /// record.
    pub fn store(&self, record: &Record) -> Result<(), Error> {
        let path = self.file(&record.key);
        if !record.is_second() {
            write(record, &path).doing(format_args!("write {}", path.display()))?;
            self.is_settled.set(true);
        }
        if record.is_foreign {
            foreign::store(&self.foreign.join(file_name(&record.key)), record)
        } else {
            Ok(())
        }
    }

    /// Deletes a record and leftovers of an interrupted write. The [`foreign`] record is deleted
    /// first. If the call is killed before the second deletion, the ordinary record with the steps
    /// is left.
    pub fn remove(&self, key: &Key, is_foreign: bool) -> Result<(), Error> {
        self.is_settled.set(false);
        let path = self.file(key);
        if is_foreign {
            remove_file(&self.foreign.join(file_name(key)))?;
            match fs::remove_dir(&self.foreign) {
                // Records of other calls for this container are in it.
                Err(err)
                    if err.kind() == io::ErrorKind::DirectoryNotEmpty || list::is_missing(&err) => {
                }
                removed => removed.doing(format_args!("remove {}", self.foreign.display()))?,
            }
        }
        remove_file(&path)
    }

    /// Removes the folder if it is empty. Dropping the value does the same, but ignores errors.
    pub fn close(self) -> Result<(), Error> {
        self.tidy()
            .doing(format_args!("remove {}", self.path.display()))
    }

    fn tidy(&self) -> io::Result<()> {
        self.is_settled.set(true);
        if self.is_within {
            return Ok(());
        }
        // Still locked, so no other call can add a record here.
        match fs::remove_dir(&self.path) {
            Err(err) if err.kind() != io::ErrorKind::DirectoryNotEmpty => Err(err),
            _ => Ok(()),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_settled.get() {
            let _ = self.tidy();
        }
    }
}

/// Creates a container's folder. Returns false if the folder exists already.
fn make(path: &Path) -> io::Result<bool> {
    match private::make_folder(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            private::make_folders(path)?;
            Ok(true)
        }
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(err) => Err(err),
        Ok(()) => Ok(true),
    }
}

/// Opens and locks a folder. The flag is true if the parent call holds the lock instead. Returns
/// `None` if the previous holder deleted the folder.
fn lock(
    path: &Path,
    may_be_within: bool,
    wait: impl Fn(&File) -> io::Result<()>,
) -> io::Result<Option<(File, bool)>> {
    let lock = match File::open(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) if may_be_within => return Ok(Some((lock, true))),
        Err(TryLockError::WouldBlock) => wait(&lock)?,
        tried => tried?,
    }
    let held = lock.metadata()?;
    Ok(fs::metadata(path)
        .is_ok_and(|now| now.ino() == held.ino())
        .then_some((lock, false)))
}

/// Writes a record atomically.
fn write(record: &Record, path: &Path) -> io::Result<()> {
    let temp = temp_of(path);
    private::write(&temp, &serde_json::to_vec(record)?)?;
    fs::rename(&temp, path)
}

/// Deletes a record's file and leftovers of an interrupted write.
fn remove_file(path: &Path) -> Result<(), Error> {
    for path in [&temp_of(path), path] {
        match fs::remove_file(path) {
            Err(err) if list::is_missing(&err) => {}
            removed => removed.doing(format_args!("remove {}", path.display()))?,
        }
    }
    Ok(())
}

pub(super) fn temp_of(path: &Path) -> PathBuf {
    path.with_extension("tmp")
}

/// Returns `<ifname>:<network>:<type>.json`; neither ifname nor network can contain a colon.
fn file_name(key: &Key) -> String {
    format!(
        "{}:{}:{}.json",
        key.owner.ifname,
        part_name(&key.owner.network),
        part_name(&key.plugin)
    )
}

/// Returns `text`, or its hash if it is too long for a file name.
pub(super) fn part_name(text: &str) -> String {
    if text.len() <= READABLE_LEN {
        return text.to_owned();
    }
    format!(
        "{DIGEST}{}",
        encode_string(&Sha256::digest(text.as_bytes()))
    )
}

/// True if a part of a file name is plain text, not a hash.
pub(super) fn is_readable(name: &str) -> bool {
    !name.starts_with(DIGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::cni::Owner;

    #[test]
    fn file_name_separates_its_parts_and_fits_the_kernels_limit() {
        let key = |network: &str, plugin: &str| {
            file_name(&Key {
                owner: Owner::new(network, "4f1c", "eth0.5"),
                plugin: plugin.to_owned(),
            })
        };
        assert_eq!(key("net.1", "bridge"), "eth0.5:net.1:bridge.json");
        let (long, longer) = ("n".repeat(300), "n".repeat(301));
        assert!(key(&long, &long).len() <= 255);
        assert_ne!(key(&long, &long), key(&longer, &long));
    }
}
