//! Mounts inside a sandbox.

use nix::mount::{MsFlags, mount};
use std::path::Path;

/// Mounts an empty tmpfs.
pub(crate) fn tmpfs(at: &Path) {
    mount(
        Some("tmpfs"),
        at,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=755"),
    )
    .expect("tmpfs");
}

/// Mounts a file or a folder at another path.
pub(crate) fn bind(from: &Path, to: &Path) {
    let none: Option<&str> = None;
    mount(Some(from), to, none, MsFlags::MS_BIND, none).expect("bind mount");
}

/// Mounts a folder at another path, with all mounts below the folder.
pub(crate) fn bind_all(from: &Path, to: &Path) {
    let none: Option<&str> = None;
    mount(
        Some(from),
        to,
        none,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        none,
    )
    .expect("bind mounts");
}
