//! Folders and files of braid's own state. They are root's alone: a network's configuration may
//! have secrets in it, and who can open a lock can hold it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Makes a folder; an error where it is there, or the one above it is not.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)
}

/// Makes a folder and those above it, as far as they are missing.
pub fn make_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(path)
}

/// Options to open a file, with its mode where it is made.
pub fn options() -> OpenOptions {
    let mut options = File::options();
    options.mode(FILE_MODE);
    options
}

/// Writes a file anew.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?
        .write_all(content)
}
