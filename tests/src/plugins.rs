//! Folder of plugins in a sandbox.

use crate::binary;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Folder of the sandbox's plugins, which are symbolic links to the `braid` under test.
pub const PLUGINS: &str = "/run/cni-bin";

/// Creates the symbolic link for `plugin` unless it exists, and returns its path.
pub(crate) fn install(plugin: &str) -> PathBuf {
    let path = Path::new(PLUGINS).join(plugin);
    match symlink(binary::braid(), &path) {
        Err(err) if err.kind() != ErrorKind::AlreadyExists => {
            panic!("link {}: {err}", path.display())
        }
        _ => path,
    }
}
