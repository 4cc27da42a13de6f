//! Sockets in the kubelet's folders, with other names at each start: the kubelet pauses for up to two minutes
//! before it asks a socket again that did not answer, and an agent that was killed leaves its sockets.
//!
//! ```text
//!  plugins/<driver>/dra-<start>.sock ◄─ plugins_registry/<driver>@<start>.sock
//! ```

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::UnixListener;

const MODE: u32 = 0o600;
/// Start and end of the name of a driver's socket.
const DRIVER: &str = "dra-";
const SUFFIX: &str = ".sock";

/// Paths of the sockets of one start.
#[derive(Debug, Clone)]
pub(super) struct Sockets {
    /// The driver's socket.
    pub(super) driver: PathBuf,
    /// The registration socket.
    ///
    /// Go's gRPC client sends its path as the authority of each request, with `%2F` for `/`. `%` is allowed
    /// only before an `@` (RFC 3986 section 3.2), and hyper refuses other requests. For the driver's socket
    /// the kubelet sends `localhost`.
    pub(super) registration: PathBuf,
    /// Start of the names of registration sockets of this driver.
    prefix: String,
}

impl Sockets {
    /// Returns the paths in the kubelet's folder for a driver that starts at this time.
    pub(super) fn new(kubelet: &Path, name: &str, start: SystemTime) -> Self {
        let start = start.duration_since(UNIX_EPOCH).unwrap_or_default();
        // The last digits suffice, and a socket's path has at most 107 bytes.
        let start = format!("{:08x}", start.as_micros() & 0xffff_ffff);
        let prefix = format!("{name}@");
        let driver = format!("{DRIVER}{start}{SUFFIX}");
        let registration = format!("{prefix}{start}{SUFFIX}");
        Self {
            driver: kubelet.join("plugins").join(name).join(driver),
            registration: kubelet.join("plugins_registry").join(registration),
            prefix,
        }
    }

    /// Deletes the sockets of earlier starts. The kubelet keeps their claims if a later one is registered.
    pub(super) fn remove_earlier(&self) {
        for (path, prefix) in [(&self.registration, &*self.prefix), (&self.driver, DRIVER)] {
            let folder = path.parent().unwrap_or(Path::new("/"));
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let is_ours = name.starts_with(prefix) && name.ends_with(SUFFIX);
                if is_ours && entry.path() != *path {
                    // The next registration deletes what stays.
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Deletes the sockets. The kubelet then no longer sends claims. After a kill it learns from the closed
    /// connection.
    pub(super) fn remove(&self) {
        for path in [&self.registration, &self.driver] {
            let _ = fs::remove_file(path);
        }
    }
}

/// Binds a socket. The kubelet looks at a new name at once, and skips names with a leading dot.
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
