//! One call at a time changes what eBPF does for the whole node.

use super::Error;
use crate::sys::netlink::KernelError;
use std::fs::{self, File};
use std::io;

const LOCKED: &str = "/run/braid";

/// Holds off all others until it is closed.
pub(super) fn lock() -> Result<File, KernelError> {
    let lock = || File::open(LOCKED).and_then(|folder| folder.lock().map(|()| folder));
    let locked = match lock() {
        Err(err) if err.kind() == io::ErrorKind::NotFound => fs::create_dir_all(LOCKED).and_then(|()| lock()),
        locked => locked,
    };
    locked.map_err(|err| Error::io(format!("lock {LOCKED}"), &err).cause)
}
