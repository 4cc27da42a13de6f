//! Deletion of the state that calls share on a node, for a program that removes braid.

use crate::store::record;
use crate::sys::netlink::Socket;
use crate::sys::nft::batch::{Batch, Family};
use crate::sys::nft::{TABLE, gone_is_fine};
use crate::{Context, Error};
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
