//! The mark of mode `flannel`: a file that says that the agent's routes are flannel's.

use crate::error::Error;
use braid_node::sys::replace::replace;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const MARK: &str = "/run/braid/flannel";
const MODE: u32 = 0o600;

/// True if the agent's routes are flannel's, so that flanneld may take them over.
pub fn is_set() -> bool {
    Path::new(MARK).exists()
}

/// Sets the mark, before the first change of the kernel.
pub fn set() -> Result<(), Error> {
    replace(MARK.as_ref(), "", MODE)
        .map(drop)
        .map_err(|err| Error::new(format_args!("write {MARK}"), err))
}

/// Deletes the mark, after a change of the mode.
pub fn delete() -> Result<(), Error> {
    match fs::remove_file(MARK) {
        Err(err) if err.kind() != ErrorKind::NotFound => {
            Err(Error::new(format_args!("delete {MARK}"), err))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
