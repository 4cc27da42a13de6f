//! A container's folder of records, and the lock on it.

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

/// Longest part of a file name that is kept as it is; the kernel's limit is 255 bytes for all of
/// it.
const READABLE_LEN: usize = 100;
/// Start of a name that is a hash.
const DIGEST: &str = "sha256-";

/// A container's folder of records, locked: one call at a time for one container, and those that it
/// runs.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The container's folder of [`foreign`] records, which this lock protects as well.
    foreign: PathBuf,
    /// Locked until it is closed, unless the call that runs this one holds it.
    _lock: File,
    is_within: bool,
    /// This call made it.
    is_new: bool,
    /// Nothing needs to be looked at when it is let go: it holds a record of this call, or is
    /// gone.
    is_settled: Cell<bool>,
}

impl Folder {
    /// Makes and locks the container's folder.
    pub fn lock(container_id: &str) -> Result<Self, Error> {
        Self::lock_in(&NODE, container_id)
    }

    /// The same below the root of a machine.
    pub fn lock_in(root: &Root, container_id: &str) -> Result<Self, Error> {
        Self::lock_by(root, container_id, wait)
    }

    /// The same with a bound of its own, in seconds.
    pub fn lock_within(container_id: &str, seconds: u32) -> Result<Self, Error> {
        Self::lock_by(&NODE, container_id, |file| wait_for(file, seconds))
    }

    /// The same without waiting: an error if another call is busy with the container.
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

    /// Path of one attachment's record, if there is one.
    pub fn file(&self, key: &Key) -> PathBuf {
        self.path.join(file_name(key))
    }

    /// True if this call made it, so that it can't hold a record of an earlier one.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The record of a call; `None` where there is none, or one that is cut off or of another
    /// layout.
    pub fn load(&self, key: &Key) -> Result<Option<Record>, Error> {
        list::load(&self.file(key))
    }

    /// The record of a call, or its [`foreign`] record if the first is lost or damaged.
    pub fn load_left(&self, key: &Key) -> Result<Option<Record>, Error> {
        match self.load(key)? {
            None => self.load_foreign(key),
            loaded => Ok(loaded),
        }
    }

    /// The [`foreign`] record of a call.
    pub fn load_foreign(&self, key: &Key) -> Result<Option<Record>, Error> {
        foreign::load(&self.foreign.join(file_name(key)))
    }

    /// True if a record of the call is there, readable or not.
    pub fn has_file(&self, key: &Key) -> bool {
        let name = file_name(key);
        [&self.path, &self.foreign]
            .iter()
            .any(|folder| folder.join(&name).exists())
    }

    /// All readable records of the container, without its [`foreign`] ones.
    pub fn records(&self) -> Result<Vec<Record>, Error> {
        let files =
            list::records_in(&self.path).doing(format_args!("list {}", self.path.display()))?;
        files
            .iter()
            .filter_map(|path| list::load(path).transpose())
            .collect()
    }

    /// The records of the same interface in the same network by other plugins.
    pub fn others(&self, key: &Key) -> Result<Vec<Record>, Error> {
        Ok(self
            .records()?
            .into_iter()
            .filter(|record| record.key.owner == key.owner && record.key != *key)
            .collect())
    }

    /// Forgets a record when nothing failed, or stores what is left of it. All errors are returned.
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

    /// Writes a record in one piece, and its [`foreign`] record if it needs one.
    pub fn store(&self, record: &Record) -> Result<(), Error> {
        let path = self.file(&record.key);
        if !record.is_second() {
            let temp = temp_of(&path);
            let write = |text: Vec<u8>| {
                private::write(&temp, &text).and_then(|()| fs::rename(&temp, &path))
            };
            let written = serde_json::to_vec(record)
                .map_err(io::Error::from)
                .and_then(write);
            written.doing(format_args!("write {}", path.display()))?;
            self.is_settled.set(true);
        }
        if record.is_foreign {
            foreign::store(&self.foreign.join(file_name(&record.key)), record)
        } else {
            Ok(())
        }
    }

    /// Removes a record, and what an interrupted write left of it. The [`foreign`] record goes
    /// first: a call that ends between the two leaves the record that has the steps.
    pub fn remove(&self, key: &Key, is_foreign: bool) -> Result<(), Error> {
        self.is_settled.set(false);
        let path = self.file(key);
        if is_foreign {
            remove_file(&self.foreign.join(file_name(key)))?;
            match fs::remove_dir(&self.foreign) {
                // Others of the container are in it.
                Err(err)
                    if err.kind() == io::ErrorKind::DirectoryNotEmpty || list::is_missing(&err) => {
                }
                removed => removed.doing(format_args!("remove {}", self.foreign.display()))?,
            }
        }
        remove_file(&path)
    }

    /// Removes the folder unless other records are in it, as dropping it does without a word.
    pub fn close(self) -> Result<(), Error> {
        self.tidy()
            .doing(format_args!("remove {}", self.path.display()))
    }

    fn tidy(&self) -> io::Result<()> {
        self.is_settled.set(true);
        if self.is_within {
            return Ok(());
        }
        // Still locked: nobody else puts a record here meanwhile.
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

/// Makes a container's folder; false where it is there.
fn make(path: &Path) -> io::Result<bool> {
    match private::make_folder(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            private::make_folders(path).map(|()| true)
        }
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// Waits for a folder, unless it is held by the call that runs this one, which is what the result
/// says besides; `None` where the call that held it took it away.
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

/// Removes a file of a record, and what an interrupted write left of it.
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

/// `<ifname>:<network>:<type>.json`; neither ifname nor network can hold a colon.
fn file_name(key: &Key) -> String {
    format!(
        "{}:{}:{}.json",
        key.owner.ifname,
        part_name(&key.owner.network),
        part_name(&key.plugin)
    )
}

/// The text itself, or its hash where it is too long for a file name.
pub(super) fn part_name(text: &str) -> String {
    if text.len() <= READABLE_LEN {
        return text.to_owned();
    }
    format!(
        "{DIGEST}{}",
        encode_string(&Sha256::digest(text.as_bytes()))
    )
}

/// True if a file's name is the text that it stands for.
pub(super) fn is_readable(name: &str) -> bool {
    !name.starts_with(DIGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::cni::Owner;

    #[test]
    fn a_file_name_keeps_its_parts_apart_and_fits_the_kernels_limit() {
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
