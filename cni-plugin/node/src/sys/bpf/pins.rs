//! Pins of maps, programs and links: `/sys/fs/bpf/braid/v3/<inode of the network namespace>/`. The
//! inode is needed since several namespaces may see the same bpffs.

use super::object::Map;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const BPFFS: &str = "/sys/fs/bpf";
/// Folder with the version of the maps' layout.
const LAYOUT: &str = "/sys/fs/bpf/braid/v3";

/// Folder of this namespace's pins.
pub(crate) fn folder() -> Result<PathBuf, Errno> {
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_err(|err| errno_of(&err))?;
    Ok(Path::new(LAYOUT).join(namespace.ino().to_string()))
}

/// Creates the folder of this namespace's pins.
pub(crate) fn make_folder() -> Result<PathBuf, Errno> {
    mount_bpffs()?;
    let folder = folder()?;
    fs::create_dir_all(&folder).map_err(|err| errno_of(&err))?;
    Ok(folder)
}

/// Deletes the folder of this namespace's pins if it is empty, then its two parent folders `v3` and
/// `braid` if they are empty.
pub(crate) fn remove_folder() -> Result<(), Errno> {
    for folder in folder()?.ancestors().take(3) {
        match fs::remove_dir(folder) {
            // Another namespace or layout has pins.
            Err(err) if err.kind() == io::ErrorKind::DirectoryNotEmpty => break,
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(errno_of(&err)),
            _ => {}
        }
    }
    Ok(())
}

/// Lists the pins with this prefix, sorted by name.
pub(crate) fn named(start: &str) -> Result<Vec<PathBuf>, Errno> {
    let entries = match fs::read_dir(folder()?) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(|err| errno_of(&err))?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|err| errno_of(&err))?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(start.as_bytes()) {
            paths.push(entry.path());
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Deletes a pin. A missing pin is a success.
pub(crate) fn remove(path: &Path) -> Result<(), Errno> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(errno_of(&err)),
        _ => Ok(()),
    }
}

/// Opens the map pinned at `path`, or creates and pins it.
pub(crate) fn ensure<K: Copy, V: Copy>(
    path: &Path,
    name: &str,
    kind: u32,
    most: usize,
    flags: u32,
) -> Result<Map<K, V>, Errno> {
    if let Some(map) = Map::pinned(path)? {
        return Ok(map);
    }
    let map = Map::create(name, kind, most, flags)?;
    map.pin(path)?;
    Ok(map)
}

/// Mounts bpffs if it is not mounted.
fn mount_bpffs() -> Result<(), Errno> {
    if statfs(BPFFS)?.filesystem_type() == BPF_FS_MAGIC {
        return Ok(());
    }
    mount(
        Some("bpf"),
        BPFFS,
        Some("bpf"),
        MsFlags::empty(),
        Some("mode=700"),
    )
}

fn errno_of(err: &io::Error) -> Errno {
    err.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
