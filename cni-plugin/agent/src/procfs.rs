//! A procfs with writable sysctls for a container.
//!
//! Container runtimes mount `/proc/sys` read-only. The agent's network namespace is the node's, so
//! a procfs of its own shows the node's sysctls below `/proc/sys/net`.

use crate::error::Error;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};

const PROC: &str = "/proc";
const SYSCTLS: &str = "/proc/sys";

/// Mounts a procfs over `/proc` if `/proc/sys` is read-only. The mount is in a mount namespace of
/// this process, which other threads do not share: the caller has only one thread.
///
/// The capability `SYS_ADMIN` is necessary, and no `AppArmor` profile that denies mounts.
pub(crate) fn make_writable() -> Result<(), Error> {
    let found = statvfs(SYSCTLS)
        .map_err(|err| Error::new(format_args!("read the mount of {SYSCTLS}"), err))?;
    if !found.flags().contains(FsFlags::ST_RDONLY) {
        return Ok(());
    }
    let failed = |err| Error::new(format_args!("mount a procfs over {PROC}"), err);
    unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
    // Mounts of the node still appear here, such as new network namespaces. Mounts from here do not
    // appear there.
    let nothing: Option<&str> = None;
    let slave = MsFlags::MS_SLAVE | MsFlags::MS_REC;
    mount(nothing, "/", nothing, slave, nothing).map_err(failed)?;
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), PROC, Some("proc"), safe, nothing).map_err(failed)
}
