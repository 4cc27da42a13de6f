//! Reads network configurations on disk, and waits for the readiness file of a default network.

use braid_core::cni::Error;
use braid_core::k8s::on_disk::{DiskFile, PLUGIN};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Largest file that is read, in bytes. A larger one is not a network configuration.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the files in the folder `path`, or the single file `path`. Returns none if `path` does
/// not exist. Skips files that cannot be read, as they may belong to other networks.
pub fn read(path: &Path) -> Result<Vec<DiskFile>, Error> {
    let fail = |err: io::Error| Error::io(format!("read {}: {err}", path.display()));
    let mut paths = Vec::new();
    match fs::metadata(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(err) => return Err(fail(err)),
        Ok(meta) if meta.is_dir() => {
            for entry in fs::read_dir(path).map_err(fail)? {
                paths.push(entry.map_err(fail)?.path());
            }
        }
        Ok(_) => paths.push(path.to_owned()),
    }
    let mut files = Vec::new();
    for path in &paths {
        if let Some(name) = path.file_name().and_then(OsStr::to_str)
            && let Ok(bytes) = bytes(path)
        {
            let name = name.to_owned();
            files.push(DiskFile { name, bytes });
        }
    }
    Ok(files)
}

/// Returns the content of a regular file of at most 1 MiB. Fails with
/// [`io::ErrorKind::InvalidInput`] for any other file. Reading a FIFO or a device might not end.
pub fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let meta = fs::metadata(path)?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        let sentence = format!("not a regular file of at most {MAX_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    fs::read(path)
}

/// Returns the plugin configurations in a folder beside the file of their list. By libcni's rule
/// these are all files with the ending [`PLUGIN`]. Fails if one of them cannot be read.
pub fn plugins(folder: &Path) -> Result<Vec<DiskFile>, Error> {
    let fail = |path: &Path, err: &io::Error| Error::io(format!("read {}: {err}", path.display()));
    // Opened without a check before, as usually the folder does not exist.
    let entries = match fs::read_dir(folder) {
        Err(err)
            if matches!(
                err.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        Err(err) => return Err(fail(folder, &err)),
        Ok(entries) => entries,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|err| fail(folder, &err))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = entry.path();
        if !name.ends_with(PLUGIN) || entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        files.push(DiskFile {
            name,
            bytes: bytes(&path).map_err(|err| fail(&path, &err))?,
        });
    }
    Ok(files)
}

/// Waits until a file exists. Returns false if it does not exist after `limit`, or if inotify
/// fails.
pub fn wait(file: &Path, limit: Duration) -> bool {
    if file.exists() || limit.is_zero() {
        return file.exists();
    }
    let end = Instant::now() + limit;
    // If the folder is missing too, watch the nearest existing parent.
    let folder = file
        .ancestors()
        .skip(1)
        .find(|folder| folder.is_dir())
        .unwrap_or(Path::new("/"));
    let Ok(inotify) = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK) else {
        return false;
    };
    let events = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
    if inotify.add_watch(folder, events).is_err() {
        return false;
    }
    while !file.exists() {
        let left = end.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
        if left.is_zero()
            || poll(
                &mut fds,
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
            ) == Ok(0)
        {
            return file.exists();
        }
        let _ = inotify.read_events();
        if folder_of(file).is_none_or(|now| now != folder) {
            return wait(file, end.saturating_duration_since(Instant::now()));
        }
    }
    true
}

fn folder_of(file: &Path) -> Option<&Path> {
    file.ancestors().skip(1).find(|folder| folder.is_dir())
}
