//! Sysctls of the calling thread's network namespace, as files below `/proc/sys`.

use std::fs::File;
use std::io;
use std::io::Read;
use std::path::PathBuf;

fn path(key: &str) -> PathBuf {
    #[cfg(test)]
    if let Some(folder) = fake::folder() {
        return folder.join(key);
    }
    PathBuf::from("/proc/sys").join(key)
}

/// Maximum length of a value in bytes.
const VALUE_LEN: usize = 4096;

/// Reads `net/…` without its final newline; `None` if the kernel has no such sysctl.
pub fn read(key: &str) -> io::Result<Option<String>> {
    let mut file = match File::open(path(key)) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    // One read returns the whole value.
    let mut value = [0; VALUE_LEN];
    let len = file.read(&mut value)?;
    Ok(Some(
        String::from_utf8_lossy(&value[..len])
            .trim_end_matches('\n')
            .to_owned(),
    ))
}

/// Writes `net/…` unless it has the value already; `false` if the kernel has no such sysctl.
///
/// A write fails if `/proc/sys` is read-only. So the function succeeds without a write if the value
/// is already right.
pub fn ensure(key: &str, value: &str) -> io::Result<bool> {
    match read(key)? {
        Some(present) if present == value => Ok(true),
        Some(_) => write(key, value),
        None => Ok(false),
    }
}

/// Writes `net/…`; `false` if the kernel has no such sysctl.
pub fn write(key: &str, value: &str) -> io::Result<bool> {
    match std::fs::OpenOptions::new().write(true).open(path(key)) {
        Ok(mut file) => {
            io::Write::write_all(&mut file, value.as_bytes())?;
            Ok(true)
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(err) => Err(err),
    }
}

/// A folder in place of `/proc/sys`, for unit tests.
#[cfg(test)]
pub(crate) mod fake {
    use std::cell::RefCell;
    use std::path::{Path, PathBuf};

    thread_local! {
        static FOLDER: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
    }

    pub(super) fn folder() -> Option<PathBuf> {
        FOLDER.with_borrow(Option::clone)
    }

    /// Runs `work` with the sysctls of this thread in `folder`.
    pub(crate) fn in_folder<T>(folder: &Path, work: impl FnOnce() -> T) -> T {
        FOLDER.set(Some(folder.to_owned()));
        let result = work();
        FOLDER.set(None);
        result
    }
}
