//! Sysctls of the calling thread's network namespace, as files below `/proc/sys`.

use std::io;
use std::path::PathBuf;

fn path(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(key)
}

/// Reads `net/…` without its final newline; `None` where the kernel has no such sysctl.
pub fn read(key: &str) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path(key)) {
        Ok(text) => Ok(Some(text.trim_end_matches('\n').to_owned())),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

/// Writes `net/…`; `false` where the kernel has no such sysctl.
pub fn write(key: &str, value: &str) -> io::Result<bool> {
    match std::fs::OpenOptions::new().write(true).open(path(key)) {
        Ok(mut file) => io::Write::write_all(&mut file, value.as_bytes()).map(|()| true),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(err) => Err(err),
    }
}
