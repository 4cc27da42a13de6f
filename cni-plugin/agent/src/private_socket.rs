//! Unix sockets for root alone, at fixed paths.

use braid_node::sys::private;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const MODE: u32 = 0o600;

/// Binds a socket to this path, in place of an earlier agent's.
pub(crate) fn bind<S>(path: &Path, bind: impl Fn(&Path) -> io::Result<S>) -> io::Result<S> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    private::make_folders(folder)?;
    // The socket appears with its mode, and calls see the old or the new one.
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let socket = bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(MODE))?;
    fs::rename(&new, path)?;
    Ok(socket)
}
