//! Folders and files with braid's state. Only root may open them: a network's configuration may
//! contain secrets, and a process that can open a lock file can hold the lock.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Creates a folder. Fails if it exists, or if its parent does not.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)
}

/// Creates a folder and its missing parents.
pub fn make_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(path)
}

/// Returns options to open a file. A new file gets the mode 0600.
pub fn options() -> OpenOptions {
    let mut options = File::options();
    options.mode(FILE_MODE);
    options
}

/// Replaces the contents of a file.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?
        .write_all(content)
}
