//! Programs of the node that braid runs.

use std::path::{Path, PathBuf};

/// Folders to search, since a plugin's environment may have no `PATH`.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Finds a program; `None` if it is not installed.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    for folder in FOLDERS {
        let path = Path::new(folder).join(name);
        if path.exists() {
            return Some(path);
        }
    }
    None
}
