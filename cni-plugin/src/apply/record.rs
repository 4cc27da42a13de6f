//! What was done for an attachment, on tmpfs: `/run/braid/attachments/<container>/<ifname>:<network>:<type>.json`.
//!
//! A record is written before the first step and is gone after the last one is undone, so that a process killed at any
//! moment leaves something that DEL and GC can act on. It dies with the kernel state that it describes.

use super::{Error, within};
use crate::cni::{Json, Owner};
use crate::plan::step::Step;
use crate::sys::lock::{wait, wait_for};
use crate::sys::room;
use base16ct::lower::encode_string;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where records live.
pub const ROOT: &str = "/run/braid/attachments";
/// Layout of a record; of others only the one before is understood.
const LAYOUT: u32 = 2;
/// Longest part of a file name that is kept as it is; the kernel's limit is 255 bytes for all of it.
const READABLE_LEN: usize = 100;

/// Which call a record belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The interface that it is for.
    #[serde(flatten)]
    pub owner: Owner,
    /// The plugin's type; `braid` for a whole list.
    pub plugin: String,
}

/// What was done, and what is needed to take it back without the runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    layout: u32,
    /// Whose it is.
    pub key: Key,
    /// `CNI_NETNS`.
    pub netns: Option<PathBuf>,
    /// Tells the namespace that was there from another one that is there now; none of a kernel before Linux 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_cookie: Option<u64>,
    /// `CNI_ARGS`.
    pub args: String,
    /// `CNI_PATH`, for foreign plugins.
    pub path: Vec<PathBuf>,
    /// The configuration as it arrived.
    pub conf: Json,
    /// The steps of each plugin of the list, in order; none for a foreign one.
    pub parts: Vec<Vec<Step>>,
    /// Since taking it back failed in part: the plugins of the list whose addresses, or whose own work where they are
    /// foreign, are still to be given back. The steps are then those that could not be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Vec<usize>>,
}

impl Record {
    /// A record of nothing yet.
    pub fn new(key: Key, conf: Json) -> Self {
        Self {
            layout: LAYOUT,
            key,
            netns: None,
            netns_cookie: None,
            args: String::new(),
            path: Vec::new(),
            conf,
            parts: Vec::new(),
            left: None,
        }
    }

    /// Whether a namespace with this cookie may be the one that was there.
    pub fn is_of(&self, cookie: Option<u64>) -> bool {
        self.netns_cookie.is_none() || cookie.is_none() || self.netns_cookie == cookie
    }

    /// Forgets the steps of some parts but for those that one of `inverses` takes back.
    pub fn keep(&mut self, parts: Range<usize>, inverses: &[Step]) {
        let is_kept =
            |step: &Step| step.inverse().is_some_and(|inverse| inverses.iter().any(|done| done.is_same_undo(&inverse)));
        self.parts[parts].iter_mut().for_each(|part| part.retain(is_kept));
    }

    /// All steps in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.parts.iter().flatten()
    }
}

/// A container's folder of records, locked: one call at a time for one container, and those that it runs.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked until it is closed, unless the call that runs this one holds it.
    _lock: File,
    is_within: bool,
    /// This call made it.
    is_new: bool,
    /// Nothing needs to be looked at when it is let go: it holds a record of this call, or is gone.
    is_settled: Cell<bool>,
}

impl Folder {
    /// Makes and locks the container's folder.
    pub fn lock(container_id: &str) -> Result<Self, Error> {
        Self::lock_in(Path::new(ROOT), container_id)
    }

    /// The same below another folder than [`ROOT`].
    pub fn lock_in(root: &Path, container_id: &str) -> Result<Self, Error> {
        Self::lock_by(root, container_id, wait)
    }

    /// The same with a bound of its own, in seconds.
    pub fn lock_within(container_id: &str, seconds: u32) -> Result<Self, Error> {
        Self::lock_by(Path::new(ROOT), container_id, |file| wait_for(file, seconds))
    }

    fn lock_by(root: &Path, container_id: &str, wait: impl Fn(&File) -> io::Result<()>) -> Result<Self, Error> {
        let path = root.join(part_name(container_id));
        let fail = |err: io::Error| Error::io(format!("lock {}", path.display()), &err);
        let may_be_within = within::holds(container_id);
        loop {
            let is_new = make(&path).map_err(fail)?;
            match lock(&path, may_be_within, &wait) {
                Ok(Some((lock, is_within))) => {
                    return Ok(Self { path, _lock: lock, is_within, is_new, is_settled: Cell::new(false) });
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

    /// Where the record of one attachment is, if there is one.
    pub fn file(&self, key: &Key) -> PathBuf {
        self.path.join(file_name(key))
    }

    /// Whether this call made it, so that it can't hold a record of an earlier one.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The record of a call; `None` where there is none, or one that is cut off or of another layout.
    pub fn load(&self, key: &Key) -> Result<Option<Record>, Error> {
        load(&self.file(key))
    }

    /// Forgets a record when nothing failed, or stores what is left of it. All errors are returned.
    pub fn settle<E: From<Error>>(&self, key: &Key, left: Option<&Record>, mut errors: Vec<E>) -> Vec<E> {
        let settled = match left {
            _ if errors.is_empty() => self.remove(key),
            Some(record) => self.store(record),
            None => Ok(()),
        };
        errors.extend(settled.err().map(E::from));
        errors
    }

    /// Writes a record in one piece.
    pub fn store(&self, record: &Record) -> Result<(), Error> {
        let path = self.file(&record.key);
        let temp = temp_of(&path);
        let fail = |err: io::Error| Error::io(format!("write {}", path.display()), &err);
        let text = serde_json::to_vec(record).map_err(|err| fail(err.into()))?;
        fs::write(&temp, text).and_then(|()| fs::rename(&temp, &path)).map_err(fail)?;
        self.is_settled.set(true);
        Ok(())
    }

    /// Removes a record, and what an interrupted write left of it.
    pub fn remove(&self, key: &Key) -> Result<(), Error> {
        self.is_settled.set(false);
        let path = self.file(key);
        for path in [temp_of(&path), path] {
            match fs::remove_file(&path) {
                Err(err) if err.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(format!("remove {}", path.display()), &err));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the folder unless other records are in it, as dropping it does without a word.
    pub fn close(self) -> Result<(), Error> {
        self.tidy().map_err(|err| Error::io(format!("remove {}", self.path.display()), &err))
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
    match fs::create_dir(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => fs::create_dir_all(path).map(|()| true),
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// Waits for a folder, unless it is held by the call that runs this one, which is what the result says besides; `None` where
/// the call that held it took it away.
fn lock(path: &Path, may_be_within: bool, wait: impl Fn(&File) -> io::Result<()>) -> io::Result<Option<(File, bool)>> {
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
    Ok(fs::metadata(path).is_ok_and(|now| now.ino() == held.ino()).then_some((lock, false)))
}

fn temp_of(path: &Path) -> PathBuf {
    path.with_extension("tmp")
}

/// All readable records of this node.
pub fn list() -> Result<Vec<Record>, Error> {
    Ok(list_dated()?.into_iter().map(|(record, _)| record).collect())
}

/// All readable records of this node, and when each was last written.
pub fn list_dated() -> Result<Vec<(Record, SystemTime)>, Error> {
    let fail = |path: &Path, err: &io::Error| Error::io(format!("list {}", path.display()), err);
    let mut records = Vec::new();
    for folder in entries(Path::new(ROOT)).map_err(|err| fail(Path::new(ROOT), &err))? {
        for path in entries(&folder).map_err(|err| fail(&folder, &err))? {
            if path.extension().is_some_and(|extension| extension == "json") {
                let written = fs::metadata(&path).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                records.extend(load(&path)?.map(|record| (record, written)));
            }
        }
    }
    Ok(records)
}

/// Shows all readable records of containers that no call is busy with, and says whether none was busy. None becomes busy
/// meanwhile.
pub fn each_idle(mut visit: impl FnMut(&Record)) -> Result<bool, Error> {
    each(|record, is_idle| {
        if is_idle {
            visit(record);
        }
    })
}

/// Shows all readable records, each with whether no call is busy with its container, and says whether none was busy. None
/// becomes busy meanwhile.
pub fn each(mut visit: impl FnMut(&Record, bool)) -> Result<bool, Error> {
    let mut all = true;
    for folder in entries(Path::new(ROOT)).map_err(|err| Error::io(format!("list {ROOT}"), &err))? {
        let Ok(file) = File::open(&folder) else { continue };
        let is_idle = file.try_lock().is_ok();
        all &= is_idle;
        for path in entries(&folder).unwrap_or_default() {
            if path.extension().is_some_and(|extension| extension == "json") {
                load(&path)?.iter().for_each(|record| visit(record, is_idle));
            }
        }
    }
    Ok(all)
}

/// Containers whose folder holds no record at all: an ADD ended between making the folder and writing to it.
pub fn sweep_empty() -> Result<(), Error> {
    for folder in entries(Path::new(ROOT)).map_err(|err| Error::io(format!("list {ROOT}"), &err))? {
        let Ok(file) = File::open(&folder) else { continue };
        if file.try_lock().is_err() {
            continue;
        }
        for path in entries(&folder).unwrap_or_default() {
            if path.extension().is_some_and(|extension| extension == "tmp") {
                let _ = fs::remove_file(path);
            }
        }
        let _ = fs::remove_dir(&folder);
    }
    Ok(())
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(err) => Err(err),
    }
}

fn load(path: &Path) -> Result<Option<Record>, Error> {
    match fs::read(path) {
        Ok(bytes) => {
            let record = serde_json::from_slice::<Record>(&bytes).ok();
            let known = record.filter(|record| [LAYOUT - 1, LAYOUT].contains(&record.layout));
            // Its steps are of this layout now, and so it is stored again.
            Ok(known.map(|record| Record { layout: LAYOUT, ..record }))
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(Error::io(format!("read {}", path.display()), &err)),
    }
}

/// `<ifname>:<network>:<type>.json`; neither ifname nor network can hold a colon.
fn file_name(key: &Key) -> String {
    format!("{}:{}:{}.json", key.owner.ifname, part_name(&key.owner.network), part_name(&key.plugin))
}

/// The text itself, or its hash where it is too long for a file name.
fn part_name(text: &str) -> String {
    if text.len() <= READABLE_LEN {
        return text.to_owned();
    }
    format!("sha256-{}", encode_string(&Sha256::digest(text.as_bytes())))
}

/// The records of an owner ([`Owner::short`]). None where the text can't be taken apart, or a record not be read: then nobody
/// knows.
pub(super) fn of_owner(text: &str) -> Option<Vec<Record>> {
    if Owner::is_digest(text) {
        return Some(list().ok()?.into_iter().filter(|record| record.key.owner.short() == text).collect());
    }
    let mut records = files_of(&Owner::parse(text)?.container_id).ok()?;
    records.retain(|path| is_of(path, text));
    records.iter().map(|path| load(path).ok()?).collect()
}

/// The container that an owner's text names; none where that is not known.
pub(super) fn container_of(text: &str) -> Option<String> {
    if Owner::is_digest(text) {
        return of_owner(text)?.pop().map(|record| record.key.owner.container_id);
    }
    Owner::parse(text).map(|owner| owner.container_id)
}

/// The records of a container but for those of one owner, the oldest first.
pub(super) fn of_container(container_id: &str, but: &str) -> Result<Vec<Record>, Error> {
    let fail = |err| Error::io(format!("list records of container {container_id}"), &err);
    let mut files = files_of(container_id).map_err(fail)?;
    files.retain(|path| !is_of(path, but));
    let written = |path: &PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let mut dated: Vec<_> = files.iter().map(|path| (written(path), path)).collect();
    dated.sort();
    let records = dated.into_iter().map(|(_, path)| load(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(records.into_iter().flatten().collect())
}

/// Whether the file is a record of this owner, as far as its name tells.
fn is_of(path: &Path, owner: &str) -> bool {
    let Some(Owner { network, ifname, .. }) = Owner::parse(owner) else { return false };
    let start = format!("{ifname}:{}:", part_name(&network));
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start))
}

fn files_of(container_id: &str) -> io::Result<Vec<PathBuf>> {
    let mut files = entries(&Path::new(ROOT).join(part_name(container_id)))?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    Ok(files)
}

/// Says whether the store can be written, for STATUS.
pub fn probe() -> Result<(), Error> {
    let fail = |err: io::Error| Error::io(format!("write to {ROOT}"), &err);
    fs::create_dir_all(ROOT).map_err(fail)?;
    room::for_a_file(Path::new(ROOT)).map_err(|errno| fail(errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::step::render;
    use crate::plan::undo::undo;

    fn key() -> Key {
        Key { owner: Owner::new("net.1", "4f1c", "eth0.5"), plugin: "bridge".to_owned() }
    }

    #[test]
    fn a_record_of_the_layout_before_is_read_and_undone() {
        let text = include_str!("record_layout_1.json");
        let record: Record = serde_json::from_str(text).expect("a record");
        assert_eq!(record.parts.iter().map(Vec::len).collect::<Vec<_>>(), [17, 7, 3, 1, 2]);
        let steps: Vec<Step> = record.steps().cloned().collect();
        let undone = render(&undo(&steps));
        let of = |command: &str| undone.lines().filter(|line| line.contains(command)).count();
        assert_eq!((of("ip link del"), of("nft delete element"), undone.lines().count()), (2, 7, 9), "{undone}");
    }

    #[test]
    fn a_key_is_one_object_of_four_names() {
        let text = r#"{"network":"net.1","container_id":"4f1c","ifname":"eth0.5","plugin":"bridge"}"#;
        assert_eq!(serde_json::to_string(&key()).expect("json"), text);
    }

    #[test]
    fn a_file_name_keeps_its_parts_apart_and_fits_the_kernels_limit() {
        assert_eq!(file_name(&key()), "eth0.5:net.1:bridge.json");
        let of = |len: usize| Owner::new(&"n".repeat(len), "4f1c", "eth0.5");
        let long = Key { owner: of(300), plugin: "p".repeat(300) };
        assert!(file_name(&long).len() <= 255);
        assert_ne!(file_name(&long), file_name(&Key { owner: of(301), ..long.clone() }));
    }

    #[test]
    fn a_cut_off_record_counts_as_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x.json");
        let text = serde_json::to_string(&Record::new(key(), Json::Null)).expect("json");
        fs::write(&path, &text).expect("written");
        assert!(load(&path).expect("readable").is_some());
        fs::write(&path, &text[..text.len() / 2]).expect("written");
        assert!(load(&path).expect("readable").is_none());
    }
}
