//! Root of cgroup2 at its mount point on this host.
//!
//! A separate mount (`fsopen()`) would need no search. But in the first cgroup namespace its
//! options would apply to all mounts of cgroup2 (`apply_cgroup_root_flags()` in
//! kernel/cgroup/cgroup.c). The node would lose `nsdelegate` and `memory_recursiveprot`, which
//! systemd sets.

use nix::errno::Errno;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Mount points of cgroup2 on nearly all hosts: without cgroup1, and beside it.
const USUAL: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const MOUNTS: &str = "/proc/self/mountinfo";

/// Opens the root in this process's cgroup namespace; `EOPNOTSUPP` if it is not mounted.
pub fn root() -> Result<OwnedFd, Errno> {
    for path in USUAL {
        if let Some(root) = open(path) {
            return Ok(root);
        }
    }
    for path in mount_points(&fs::read_to_string(MOUNTS).unwrap_or_default()) {
        if let Some(root) = open(path) {
            return Ok(root);
        }
    }
    Err(Errno::EOPNOTSUPP)
}

/// Opens the folder at `path`; `None` if it is not in a cgroup2 file system.
fn open(path: impl AsRef<Path>) -> Option<OwnedFd> {
    let folder = File::open(path).ok()?;
    let is_it = fstatfs(&folder).ok()?.filesystem_type() == CGROUP2_SUPER_MAGIC;
    is_it.then(|| folder.into())
}

/// Returns the mount points of the whole cgroup2, from the text of `/proc/self/mountinfo`. In each
/// line, the fourth word is the mount's root and the fifth word is the mount point. The type is the
/// first word after the dash.
fn mount_points(mountinfo: &str) -> Vec<String> {
    let mount_point = |line: &str| {
        let (mount, of) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(3);
        let (root, path) = (words.next()?, words.next()?);
        (root == "/" && of.starts_with("cgroup2 ")).then(|| path.to_owned())
    };
    mountinfo.lines().filter_map(mount_point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_of_a_subtree_is_not_the_root() {
        let text = "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n\
                    41 31 0:38 / /mnt/unified rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n\
                    42 31 0:38 /pods /mnt/pods rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mount_points(text), ["/mnt/unified"]);
        assert_eq!(mount_points("an odd line\n"), [""; 0]);
    }

    #[test]
    fn the_root_is_found() {
        let root = root().expect("cgroup2 is mounted");
        assert_eq!(
            fstatfs(&root).expect("a file system").filesystem_type(),
            CGROUP2_SUPER_MAGIC
        );
    }
}
