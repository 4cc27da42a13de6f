//! Files that other programs read while they are replaced.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Replaces the file by rename, and creates its folder if missing. Does nothing if the file has
/// this text and mode already. Returns true if it was replaced.
///
/// Only one process at a time may replace a file.
pub fn replace(path: &Path, text: &str, mode: u32) -> io::Result<bool> {
    if is_written(path, text, mode) {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Runtimes skip a hidden file without a known suffix.
    let temporary = folder.join(format!(".{name}.new"));
    // A process may have been killed while it wrote the file.
    match fs::remove_file(&temporary) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        // The file must be complete after a crash of the node, or no pod starts.
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })?;
    Ok(true)
}

/// True if `path` is a regular file with this text and mode.
pub fn is_written(path: &Path, text: &str, mode: u32) -> bool {
    has(path, text, mode).unwrap_or(false)
}

fn has(path: &Path, text: &str, mode: u32) -> io::Result<bool> {
    // Without this flag, opening a FIFO waits for a writer.
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let meta = file.metadata()?;
    let is_equal = meta.is_file()
        && meta.permissions().mode() & 0o7777 == mode
        && meta.len() == text.len() as u64;
    if !is_equal {
        return Ok(false);
    }
    let mut found = Vec::with_capacity(text.len());
    file.read_to_end(&mut found)?;
    Ok(found == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: u32 = 0o600;

    #[test]
    fn a_file_is_replaced_once_with_its_mode_and_no_other_file_is_left() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("new/file");
        assert!(replace(&path, "a", PRIVATE)?);
        assert!(!replace(&path, "a", PRIVATE)?);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        assert!(replace(&path, "a", PRIVATE)?);
        fs::write(folder.path().join("new/.file.new"), "half")?;
        assert!(replace(&path, "b", PRIVATE)?);
        assert_eq!(fs::read_to_string(&path)?, "b");
        let mode = fs::metadata(&path)?.permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE);
        assert_eq!(fs::read_dir(folder.path().join("new"))?.count(), 1);
        Ok(())
    }

    #[test]
    fn a_fifo_without_a_writer_is_replaced_without_waiting() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR)?;
        assert!(replace(&path, "a", PRIVATE)?);
        assert_eq!(fs::read_to_string(&path)?, "a");
        Ok(())
    }
}
