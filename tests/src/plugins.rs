//! Plugins of a sandbox.

use crate::binary;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Where a sandbox has its plugins, as links to the `braid` under test.
pub const PLUGINS: &str = "/run/cni-bin";

/// Makes `plugin` callable in the sandbox.
pub(crate) fn install(plugin: &str) -> PathBuf {
    let path = Path::new(PLUGINS).join(plugin);
    match symlink(binary::braid(), &path) {
        Err(err) if err.kind() != ErrorKind::AlreadyExists => {
            panic!("link {}: {err}", path.display())
        }
        _ => path,
    }
}
