//! Deletion of the state that calls share on a node, for a program that removes braid.

use crate::ipam::whereabouts::store;
use crate::store::record;
use crate::sys::netlink::Socket;
use crate::sys::nft::batch::{Batch, Family};
use crate::sys::nft::{TABLE, gone_is_fine};
use crate::{Context, Error};
use braid_core::cni;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Folder of records, caches and locks.
const STATE: &str = "/run/braid";

/// Deletes the table of calls, their records, caches and locks, if no container is attached.
/// Returns false if one is: its DEL needs all of them.
pub fn state_of_calls() -> Result<bool, Error> {
    if !record::list()?.is_empty() {
        return Ok(false);
    }
    let mut batch = Batch::new(Family::Inet, TABLE);
    batch.del_table();
    let deleted = Socket::netfilter().and_then(|mut socket| batch.send(&mut socket));
    gone_is_fine(deleted).doing(format_args!("delete table inet {TABLE}"))?;
    empty(Path::new(STATE)).doing(format_args!("empty {STATE}"))?;
    Ok(true)
}

/// Deletes the journals of cluster-wide addresses, if they have no address of this node. Returns the
/// names of the pools whose journals have some, which the pools may have too.
pub fn journals() -> Result<Vec<String>, cni::Error> {
    journals_in(Path::new(store::FOLDER))
}

/// [`journals`] for a folder other than [`store::FOLDER`].
fn journals_in(folder: &Path) -> Result<Vec<String>, cni::Error> {
    let mut pools = Vec::new();
    for path in store::journals(folder)? {
        let journal = store::peek(&path)?;
        if !journal.own.is_empty() || !journal.sought.is_empty() {
            pools.extend(journal.place.map(|place| place.name));
        }
    }
    if !pools.is_empty() {
        return Ok(pools);
    }
    match fs::remove_dir_all(folder) {
        Err(err) if err.kind() != ErrorKind::NotFound => {
            let failed = format!("delete {}: {err}", folder.display());
            Err(cni::Error::io(failed))
        }
        _ => Ok(pools),
    }
}

/// Deletes the content of a folder. The folder stays, because it may be a mount.
fn empty(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_stay_if_one_has_an_address() -> Result<(), cni::Error> {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("ipam");
        let own = r#"{"place": {"name": "10.1.0.0-24", "net": "10.1.0.0/24", "network": "",
            "has_reservations": true, "kubeconfig": "/k"}, "own": {"5": {"entry": {"id": "c1",
            "ifname": "net1"}, "network": "lan", "boot": "b", "state": "Owed", "reservation": "Asked"}}}"#;
        for (name, text) in [
            ("a.json", "{}"),
            ("a.lock", ""),
            ("node.json", "{}"),
            ("b.json", own),
        ] {
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join(name), text).expect("written");
        }
        assert_eq!(journals_in(&folder)?, ["10.1.0.0-24"]);
        assert!(folder.join("a.json").exists());
        fs::write(folder.join("b.json"), "{}").expect("written");
        assert_eq!(journals_in(&folder)?, [""; 0]);
        assert!(!folder.exists());
        assert_eq!(journals_in(&folder)?, [""; 0]);
        Ok(())
    }

    #[test]
    fn a_folder_is_emptied_and_links_are_not_followed() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
        for path in [inside.join("deep/er"), outside.clone()] {
            fs::create_dir_all(path)?;
        }
        fs::write(inside.join("deep/er/file"), "")?;
        fs::write(outside.join("file"), "")?;
        std::os::unix::fs::symlink(&outside, inside.join("link"))?;
        empty(&inside)?;
        assert_eq!(fs::read_dir(&inside)?.count(), 0);
        assert!(outside.join("file").exists());
        empty(&folder.path().join("missing"))
    }
}
