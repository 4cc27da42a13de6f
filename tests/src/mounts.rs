//! Mounts inside a sandbox.

use nix::mount::{MsFlags, mount};
use std::path::Path;

/// Mounts an empty file system.
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

/// Like [`bind`], including all mounts below.
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
