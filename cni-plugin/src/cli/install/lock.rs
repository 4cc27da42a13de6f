//! Lock that serializes installations and removals in one plugin folder.

use braid_node::sys::lock;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum wait in seconds for another installation or removal.
const PATIENCE_S: u32 = 60;

/// The plugin folder, locked with flock(2). The lock is on the folder itself, so no lock file is
/// left behind. The lock ends with the process, and works from a container that mounts the node's
/// folder.
pub(super) struct Lock {
    folder: Option<File>,
    /// Folders that were created for the lock, the innermost first.
    created: Vec<PathBuf>,
}

/// Locks the folder `dir` until the returned lock is dropped. Waits while another process holds the
/// lock. Creates a missing folder. A created folder that is still empty is removed on drop. If a
/// removal can't create the folder, the removal goes on without a lock: no installation can create
/// the folder either.
pub(super) fn hold(dir: &Path, is_removal: bool) -> Result<Lock, String> {
    let mut held = Lock {
        folder: None,
        created: Vec::new(),
    };
    loop {
        if !dir.is_dir() {
            held.created = dir
                .ancestors()
                .take_while(|folder| !folder.exists())
                .map(Path::to_owned)
                .collect();
            match fs::create_dir_all(dir) {
                Err(_) if is_removal => return Ok(held),
                created => created.map_err(|err| format!("create {}: {err}", dir.display()))?,
            }
        }
        let file = match File::open(dir) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
            file => file.map_err(|err| format!("open {}: {err}", dir.display()))?,
        };
        let inode = file
            .metadata()
            .map_err(|err| format!("read {}: {err}", dir.display()))?
            .ino();
        lock::wait_for(&file, PATIENCE_S).map_err(|err| refusal(dir, inode, &err))?;
        // The previous holder may have removed the folder that it had created.
        if fs::metadata(dir).is_ok_and(|meta| meta.ino() == inode) {
            held.folder = Some(file);
            return Ok(held);
        }
    }
}

fn refusal(dir: &Path, inode: u64, err: &io::Error) -> String {
    if err.kind() != io::ErrorKind::TimedOut {
        return format!("lock {}: {err}", dir.display());
    }
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let holder = holder(&locks, inode).map_or_else(String::new, |pid| format!(" (process {pid})"));
    let sentence = format!("another install or removal{holder} has held it for {PATIENCE_S} s");
    format!("lock {}: {sentence}", dir.display())
}

/// Returns the process that has locked the file, from `/proc/locks`; `None` for a process in
/// another container.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else {
            return None;
        };
        let is_file = file.rsplit(':').next()?.parse() == Ok(inode);
        let pid = pid.parse().ok()?;
        (is_file && pid != 0).then_some(pid)
    };
    locks.lines().find_map(of_line)
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The folders are removed while the lock is held. A folder with files stays.
        for folder in &self.created {
            let _ = fs::remove_dir(folder);
        }
        drop(self.folder.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::TryLockError;

    #[test]
    fn folder_is_locked_until_drop_and_removed_if_created_and_empty() {
        let dir = tempfile::tempdir().expect("a folder");
        let bin = dir.path().join("opt/bin");
        let held = hold(&bin, false).expect("held");
        let other = File::open(&bin).expect("a folder");
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        assert!(!dir.path().join("opt").exists());
        let held = hold(&bin, false).expect("held again");
        fs::write(bin.join("braid"), "").expect("a file");
        drop(held);
        assert!(bin.join("braid").exists());
        drop(hold(dir.path(), true).expect("held"));
        assert!(dir.path().exists());
        let below = bin.join("braid/bin");
        assert!(
            hold(&below, false)
                .is_err_and(|err| err.starts_with(&format!("create {}", below.display())))
        );
        assert!(hold(&below, true).is_ok(), "nothing can be there to remove");
    }

    #[test]
    fn the_process_that_holds_the_lock_is_named_if_it_is_seen() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 08:01:78 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 08:01:77 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 14 08:01:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 08:01:79 0 EOF\n";
        assert_eq!(
            [77, 79, 80].map(|inode| holder(locks, inode)),
            [Some(13), None, None]
        );
    }
}
