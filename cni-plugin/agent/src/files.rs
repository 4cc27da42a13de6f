//! Files that other programs read while they are replaced.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Mode of a file that only root may read.
pub(crate) const PRIVATE: u32 = 0o600;
/// Mode of a file that everybody may read.
pub(crate) const PUBLIC: u32 = 0o644;

/// Replaces the file by rename, unless it has this text already. Returns true if it was replaced.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> io::Result<bool> {
    if fs::read(path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Runtimes skip a hidden file without a known suffix.
    let temporary = folder.join(format!(".{name}.new"));
    // An agent may have been killed while it wrote the file.
    match fs::remove_file(&temporary) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    // The file must be complete after a crash of the node, or no pod starts.
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_once_with_its_mode_and_no_other_file_is_left() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("new/file");
        assert!(replace(&path, "a", PRIVATE)?);
        assert!(!replace(&path, "a", PRIVATE)?);
        fs::write(folder.path().join("new/.file.new"), "half")?;
        assert!(replace(&path, "b", PRIVATE)?);
        assert_eq!(fs::read_to_string(&path)?, "b");
        let mode = fs::metadata(&path)?.permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE);
        assert_eq!(fs::read_dir(folder.path().join("new"))?.count(), 1);
        Ok(())
    }
}
