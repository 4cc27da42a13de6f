//! Lookup of records: all of the node, or those of one container or owner.

use super::folder::{is_readable, part_name};
use super::{Key, Record, foreign};
use crate::store::root::Root;
use crate::sys::{free_space, private};
use crate::{Context, Error};
use braid_core::cni::Owner;
use braid_core::cni::netconf::is_identifier;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Folder of the records.
pub const ROOT: &str = "/run/braid/attachments";

/// Returns all readable records of this node.
pub fn list() -> Result<Vec<Record>, Error> {
    list_in(Path::new(ROOT))
}

/// [`list`] for a folder other than [`ROOT`].
pub fn list_in(root: &Path) -> Result<Vec<Record>, Error> {
    let mut records = Vec::new();
    for path in files_in(root)? {
        records.extend(load(&path)?);
    }
    Ok(records)
}

/// Visits all readable records of this node, one at a time in memory. Takes no lock.
pub fn each(mut visit: impl FnMut(&Record)) -> Result<(), Error> {
    for path in files_in(Path::new(ROOT))? {
        if let Some(record) = load(&path)? {
            visit(&record);
        }
    }
    Ok(())
}

/// Returns all readable records of this node with their modification times.
pub fn list_dated() -> Result<Vec<(Record, SystemTime)>, Error> {
    let mut records = Vec::new();
    for path in files_in(Path::new(ROOT))? {
        let written = written_at(&path).unwrap_or(SystemTime::UNIX_EPOCH);
        if let Some(record) = load(&path)? {
            records.push((record, written));
        }
    }
    Ok(records)
}

/// Returns the time at which a file was last written.
fn written_at(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// A record file that is truncated or of an unknown layout.
#[derive(Debug)]
pub struct Damaged {
    /// Id of the container, from the name of its folder.
    pub container_id: String,
    path: PathBuf,
}

/// Returns the unreadable record files below a folder like [`ROOT`]. Skips folders with a hashed
/// name, which does not give the container.
pub fn damaged_in(root: &Path) -> Result<Vec<Damaged>, Error> {
    let mut damaged = Vec::new();
    for path in files_in(root)? {
        let Some(container_id) = container_in(&path) else {
            continue;
        };
        let found = Damaged { container_id, path };
        if found.is_there() {
            damaged.push(found);
        }
    }
    Ok(damaged)
}

/// Returns the container id from the path of a record; `None` if the folder's name is a hash.
fn container_in(path: &Path) -> Option<String> {
    let name = path.parent()?.file_name()?.to_str()?;
    is_readable(name).then(|| name.to_owned())
}

impl Damaged {
    /// True if, by its name, the file is the record of a call for this network, and for this plugin
    /// type if one is given.
    pub fn is_of(&self, network: &str, plugin: Option<&str>) -> bool {
        let mut parts = self.parts().skip(1);
        let is_network = parts.next() == Some(&part_name(network));
        is_network && plugin.is_none_or(|plugin| parts.next() == Some(&part_name(plugin)))
    }

    /// Returns the interface of the call, from the file's name.
    pub fn ifname(&self) -> &str {
        self.parts().next().unwrap_or_default()
    }

    /// Returns the parts of the file's name: interface, network and plugin type.
    fn parts(&self) -> impl Iterator<Item = &str> {
        let stem = self.path.file_stem().unwrap_or_default();
        stem.to_str().unwrap_or_default().splitn(3, ':')
    }

    /// True if the file exists and is still unreadable.
    pub fn is_there(&self) -> bool {
        matches!(load(&self.path), Ok(None)) && self.path.exists()
    }

    /// Deletes the file.
    pub fn remove(&self) -> Result<(), Error> {
        fs::remove_file(&self.path).doing(format_args!("remove {}", self.path.display()))
    }
}

/// Visits the readable records of each container that no call is processing. Returns true if no
/// container was skipped. The container's folder is locked during its visits.
pub fn each_idle(mut visit: impl FnMut(&Record)) -> Result<bool, Error> {
    each_in(Path::new(ROOT), |record, is_idle| {
        if is_idle {
            visit(record);
        }
    })
}

/// Visits all readable records below a folder like [`ROOT`]. The flag is true if the container is
/// idle: no call is processing it. The folder of an idle container is locked during its visits.
/// Returns true if all containers were idle.
pub fn each_in(root: &Path, mut visit: impl FnMut(&Record, bool)) -> Result<bool, Error> {
    let mut all_idle = true;
    for folder in folders_in(root)? {
        let Ok(file) = File::open(&folder) else {
            continue;
        };
        let is_idle = file.try_lock().is_ok();
        all_idle &= is_idle;
        for path in records_in(&folder).unwrap_or_default() {
            if let Some(record) = load(&path)? {
                visit(&record, is_idle);
            }
        }
    }
    Ok(all_idle)
}

/// Removes container folders without a record, left by an ADD that was killed before writing one.
pub fn sweep_empty() -> Result<(), Error> {
    sweep_empty_in(Path::new(ROOT))
}

/// [`sweep_empty`] for a folder other than [`ROOT`].
pub fn sweep_empty_in(root: &Path) -> Result<(), Error> {
    for folder in folders_in(root)? {
        let Ok(file) = File::open(&folder) else {
            continue;
        };
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

/// Checks that records can be written. STATUS reports a failure.
pub fn probe() -> Result<(), Error> {
    let doing = format_args!("write to {ROOT}");
    private::make_folders(Path::new(ROOT)).doing(doing)?;
    free_space::for_a_file(Path::new(ROOT)).doing(doing)
}

/// Returns the records with an attachment that belongs to the owner `text` ([`Owner::short`]).
/// `None` if a record cannot be read, or if `text` is not an owner.
pub(crate) fn of_owner(text: &str) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    if let Some(owner) = Owner::parse(text) {
        for path in records_of(&owner.container_id).ok()? {
            records.push(load(&path).ok()??);
        }
    } else if Owner::is_digest(text) {
        records = list().ok()?;
    } else {
        return None;
    }
    records.retain(|record| record.owners().any(|owner| owner.short() == text));
    Some(records)
}

/// True if a record has an attachment that belongs to the owner `text`. Also true if a record
/// cannot be read, because that record may have such an attachment.
pub(crate) fn is_owned(text: &str) -> bool {
    let Some(owner) = Owner::parse(text) else {
        return of_owner(text).is_none_or(|records| !records.is_empty());
    };
    let Ok(files) = records_of(&owner.container_id) else {
        return true;
    };
    files.iter().any(|path| match read::<Owners>(path) {
        Ok(owners) => owners.is_some_and(|owners| owners.has(&owner)),
        Err(_) => true,
    })
}

/// Returns the container id of the owner `text`; `None` if the container is unknown.
pub(crate) fn container_of(text: &str) -> Option<String> {
    if Owner::is_digest(text) {
        let record = of_owner(text)?.pop()?;
        return Some(record.key.owner.container_id);
    }
    Some(Owner::parse(text)?.container_id)
}

/// True if a container has a record on the machine with this root folder, readable or not. Also true
/// if its folder cannot be read.
pub fn is_known(root: &Root, container_id: &str) -> bool {
    let has_records = |folder: &str| {
        let files = records_in(&root.at(folder).join(part_name(container_id)));
        files.map_or(true, |files| !files.is_empty())
    };
    is_identifier(container_id) && [ROOT, foreign::ROOT].into_iter().any(has_records)
}

/// Returns the records of a container, oldest first.
pub(crate) fn of_container(container_id: &str) -> Result<Vec<Record>, Error> {
    let files =
        records_of(container_id).doing(format_args!("list records of container {container_id}"))?;
    let mut dated: Vec<_> = files.iter().map(|path| (written_at(path), path)).collect();
    dated.sort();
    let mut records = Vec::new();
    for (_, path) in dated {
        records.extend(load(path)?);
    }
    Ok(records)
}

/// Loads a record; `None` if it is missing, truncated or of an unknown layout.
pub(super) fn load(path: &Path) -> Result<Option<Record>, Error> {
    Ok(read(path)?.filter(Record::is_known))
}

/// The fields of a record that name its owners.
#[derive(Deserialize)]
struct Owners {
    key: Key,
    /// Empty in records of layouts 1 and 2, which describe only one attachment.
    #[serde(default)]
    attachments: Vec<OwnerOf>,
}

#[derive(Deserialize)]
struct OwnerOf {
    network: String,
    ifname: String,
}

impl Owners {
    fn has(&self, owner: &Owner) -> bool {
        let is_its = |one: &OwnerOf| one.network == owner.network && one.ifname == owner.ifname;
        let is_one = self.attachments.is_empty() && self.key.owner == *owner;
        is_one
            || self.key.owner.container_id == owner.container_id
                && self.attachments.iter().any(is_its)
    }
}

fn files_in(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for folder in folders_in(root)? {
        files.extend(records_in(&folder).doing(format_args!("list {}", folder.display()))?);
    }
    Ok(files)
}

pub(super) fn folders_in(root: &Path) -> Result<Vec<PathBuf>, Error> {
    entries(root).doing(format_args!("list {}", root.display()))
}

fn records_of(container_id: &str) -> io::Result<Vec<PathBuf>> {
    records_in(&Path::new(ROOT).join(part_name(container_id)))
}

pub(super) fn records_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = entries(folder)?;
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    Ok(files)
}

pub(super) fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => paths_of(entries),
        Err(err) if is_missing(&err) => Ok(Vec::new()),
        Err(err) => Err(err),
    }
}

fn paths_of(entries: fs::ReadDir) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry?.path());
    }
    Ok(paths)
}

/// True if the error says that a file or its folder does not exist.
pub(super) fn is_missing(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    match fs::read(path) {
        Err(err) if is_missing(&err) => Ok(None),
        read => {
            Ok(serde_json::from_slice(&read.doing(format_args!("read {}", path.display()))?).ok())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::Attached;
    use braid_core::cni::{Attachment, Json};
    use braid_core::name::IfName;

    fn record() -> Record {
        let key = Key {
            owner: Owner::new("pods", "c", "eth0"),
            plugin: "braid".to_owned(),
        };
        let attached = |network, ifname| {
            let ifname = IfName::parse(ifname).expect("a name");
            let attachment = Attachment {
                container_id: "c".to_owned(),
                ifname,
                netns: None,
                args: String::new(),
            };
            Attached::new(network, "bridge", &attachment, Json::Null.into())
        };
        Record::new(
            key,
            None,
            vec![attached("blue", "eth0"), attached("red", "net1")],
        )
    }

    #[test]
    fn truncated_record_counts_as_missing() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x.json");
        let text = serde_json::to_string(&record()).expect("json");
        fs::write(&path, &text).expect("written");
        assert!(load(&path).expect("readable").is_some());
        fs::write(&path, &text[..text.len() / 2]).expect("written");
        assert!(load(&path).expect("readable").is_none());
        fs::write(&path, text.replace(r#""layout":3"#, r#""layout":4"#)).expect("written");
        assert!(load(&path).expect("readable").is_none());
    }

    #[test]
    fn record_content_names_its_owners() {
        let text = serde_json::to_string(&record()).expect("json");
        let owners: Owners = serde_json::from_str(&text).expect("owners");
        let owner = |text| Owner::parse(text).expect("an owner");
        let texts = [
            "blue c eth0",
            "red c net1",
            "pods c eth0",
            "blue c net1",
            "red d net1",
        ];
        let has = texts.map(|text| owners.has(&owner(text)));
        assert_eq!(has, [true, true, false, false, false]);
        let of_before = Owners {
            attachments: Vec::new(),
            ..owners
        };
        assert_eq!(
            ["pods c eth0", "blue c eth0"].map(|text| of_before.has(&owner(text))),
            [true, false]
        );
    }
}
