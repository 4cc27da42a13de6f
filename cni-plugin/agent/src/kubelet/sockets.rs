//! Sockets in the kubelet's folders.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::net::UnixListener;

const MODE: u32 = 0o600;

/// Binds a socket in place of an earlier one. The kubelet looks at a new name at once, and skips names
/// with a leading dot.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default();
    let hidden = folder.join(format!(".{}", name.display()));
    match fs::remove_file(&hidden) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let listener = UnixListener::bind(&hidden)?;
    fs::set_permissions(&hidden, Permissions::from_mode(MODE))?;
    fs::rename(&hidden, path)?;
    Ok(listener)
}
