//! Page cache of the contenders' programs.

use anyhow::{Context, Result};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{self, File};
use std::path::Path;

/// Drops the files of `dir` from the page cache, so that the kernel reads them again from their
/// disk, if they are on one.
///
/// A file that was just written is in the page cache in larger folios than one that was read. This
/// makes programs that run for a few milliseconds up to 12 % faster, so contenders built at
/// different times would not be equal. After the next reboot of a node, all programs are read.
pub(crate) fn read_anew(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_file() {
            forget(&path).with_context(|| format!("have {} read again", path.display()))?;
        }
    }
    Ok(())
}

fn forget(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    // Only clean pages can be dropped.
    file.sync_data()?;
    Ok(posix_fadvise(
        &file,
        0,
        0,
        PosixFadviseAdvice::POSIX_FADV_DONTNEED,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_unchanged_and_other_entries_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("plugin"), "text").unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        read_anew(dir.path()).unwrap();
        assert_eq!(fs::read(dir.path().join("plugin")).unwrap(), b"text");
        assert!(read_anew(&dir.path().join("missing")).is_err());
    }
}
