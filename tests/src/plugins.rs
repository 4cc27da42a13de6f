//! Plugins in a sandbox.

use crate::binary;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Folder with the sandbox's plugins, which are links to the `braid` under test.
pub const PLUGINS: &str = "/run/cni-bin";

/// Creates the link for `plugin` in the sandbox, unless it exists.
pub(crate) fn install(plugin: &str) -> PathBuf {
    let path = Path::new(PLUGINS).join(plugin);
    match symlink(binary::braid(), &path) {
        Err(err) if err.kind() != ErrorKind::AlreadyExists => {
            panic!("link {}: {err}", path.display())
        }
        _ => path,
    }
}
