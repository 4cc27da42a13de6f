//! Second records of calls that run foreign programs, kept across reboots:
//! `/var/lib/braid/foreign/<container>/<ifname>:<network>:<type>.json`.
//!
//! A foreign plugin or IPAM is another program. A call that runs one has a second record here,
//! which is written before the first foreign program starts and deleted with the ordinary record. A
//! reboot deletes kernel state, but not an address that a foreign IPAM stored. So the second record
//! has the boot id, and everything in the ordinary record except for the steps. DEL and GC use it
//! if the ordinary record is missing or damaged.
//!
//! Compatibility: the file is a [`Record`] with `layout` 3 and `boot`. Later releases read every
//! layout from 3 on.
//!
//! Files are not synced. A file that a power cut left empty or truncated counts as missing.

use super::content::boot_id;
use super::folder::{Folder, temp_of};
use super::{Attached, Record, list};
use crate::store::root::Root;
use crate::sys::private;
use crate::{Context, Error};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folder of the foreign records.
pub const ROOT: &str = "/var/lib/braid/foreign";

/// Returns all readable foreign records of the machine with this root folder.
pub fn all(root: &Root) -> Result<Vec<Record>, Error> {
    let records = list::list_in(&root.at(ROOT))?;
    records.into_iter().map(of_this_boot).collect()
}

/// Deletes leftovers of interrupted writes, and folders without a record.
pub fn sweep(root: &Root) -> Result<(), Error> {
    for folder in list::folders_in(&root.at(ROOT))? {
        let files = list::entries(&folder).unwrap_or_default();
        let is_temp = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "tmp");
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if !files.iter().all(is_temp) {
            continue;
        }
        // A call that is processing the container may be about to write there.
        let Ok(_lock) = Folder::try_lock_in(root, name) else {
            continue;
        };
        for path in files {
            let _ = fs::remove_file(path);
        }
        let _ = fs::remove_dir(&folder);
    }
    Ok(())
}

/// Loads a record; `None` if it is missing, truncated or of an unknown layout.
pub(super) fn load(path: &Path) -> Result<Option<Record>, Error> {
    match list::load(path)? {
        Some(record) => Ok(Some(of_this_boot(record)?)),
        None => Ok(None),
    }
}

/// Writes the foreign record for `record`: the part that is still valid after a reboot.
pub(super) fn store(path: &Path, record: &Record) -> Result<(), Error> {
    let boot = match &record.boot {
        None => boot_id()?,
        Some(boot) => boot.clone(),
    };
    let without_steps = |attached: &Attached| Attached {
        parts: vec![Vec::new(); attached.parts.len()],
        default_route: None,
        displaced: Vec::new(),
        ..attached.clone()
    };
    let attachments = record.attachments.iter().map(without_steps).collect();
    let second = Record {
        layout: record.layout,
        key: record.key.clone(),
        netns: record.netns.clone(),
        netns_cookie: record.netns_cookie,
        path: record.path.clone(),
        attachments,
        owed: None,
        is_unpublished: false,
        is_foreign: true,
        boot: Some(boot),
    };
    write(&second, path).doing(format_args!("write {}", path.display()))
}

/// Writes a record atomically; creates its folder if missing.
fn write(record: &Record, path: &Path) -> io::Result<()> {
    let text = serde_json::to_vec(record)?;
    let temp = temp_of(path);
    match private::write(&temp, &text) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            private::make_folders(path.parent().unwrap_or(path))?;
            private::write(&temp, &text)?;
        }
        written => written?,
    }
    fs::rename(&temp, path)
}

/// Clears the record's network namespace if it is from an earlier boot, as another namespace may be
/// at its path now.
fn of_this_boot(mut record: Record) -> Result<Record, Error> {
    let boot = record.boot.get_or_insert_default();
    if *boot != boot_id()? {
        (record.netns, record.netns_cookie) = (None, None);
    }
    Ok(record)
}
