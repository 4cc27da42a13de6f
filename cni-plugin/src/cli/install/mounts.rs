//! Source of a mounted folder on the node, as reported by the kernel.

use std::fs;
use std::path::{Path, PathBuf};

/// Mount of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Path of the folder in its file system.
    pub(super) source: PathBuf,
    /// True if only a part of the file system is mounted, as in a container.
    is_part: bool,
}

/// Returns the mount of `folder`; `None` if /proc does not show it.
pub(super) fn of(folder: &Path) -> Option<Mount> {
    let folder = folder.canonicalize().ok()?;
    find(&fs::read_to_string("/proc/self/mountinfo").ok()?, &folder)
}

/// Finds the mount of `folder`. Of several mounts at the same path, the last one is visible (`man 5
/// proc_pid_mountinfo`).
fn find(mountinfo: &str, folder: &Path) -> Option<Mount> {
    let mut deepest: Option<(PathBuf, PathBuf)> = None;
    for line in mountinfo.lines() {
        let mut fields = line.split(' ').skip(3);
        let (Some(root), Some(place)) = (fields.next(), fields.next()) else {
            continue;
        };
        let place = unescaped(place);
        if !folder.starts_with(&place) {
            continue;
        }
        // All these mount points contain `folder`, so the longer path is the deeper one.
        if deepest
            .as_ref()
            .is_none_or(|(_, deepest)| place.starts_with(deepest))
        {
            deepest = Some((unescaped(root), place));
        }
    }
    let (root, place) = deepest?;
    let below = folder.strip_prefix(&place).ok()?;
    let is_part = root != Path::new("/");
    Some(Mount {
        source: if below == Path::new("") {
            root
        } else {
            root.join(below)
        },
        is_part,
    })
}

/// Decodes the octal escapes for space, tab, newline and backslash.
fn unescaped(field: &str) -> PathBuf {
    let mut text = field.to_owned();
    for (code, byte) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        text = text.replace(code, byte);
    }
    text.into()
}

impl Mount {
    /// True if this mount may be the node's `folder`. Compares at most the last two names, because
    /// a mount or a link can change the names before them.
    pub(super) fn is_probably(&self, folder: &Path) -> bool {
        let names = |path: &Path| path.components().skip(1).count();
        let (ours, theirs) = (folder.components().rev(), self.source.components().rev());
        let same = ours
            .zip(theirs)
            .take_while(|(a, b)| a == b && a.as_os_str() != "/")
            .count();
        same >= names(&self.source).min(names(folder)).min(2)
    }

    /// True if `folder` is the mount's source with a prefix, such as `/host/opt/cni/bin` for
    /// `/opt/cni/bin`. This process is then in a container that has a part of the node mounted
    /// there.
    pub(super) fn is_below(&self, folder: &Path) -> bool {
        let names = self.source.strip_prefix("/").unwrap_or(&self.source);
        self.is_part && folder != self.source && folder.ends_with(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_of_a_mounted_folder_is_found() {
        let mounts = "22 1 0:21 / / rw - overlay overlay rw\n\
                      30 22 8:1 /opt/cni/bin /host/opt/cni/bin rw,relatime - ext4 /dev/sda1 rw\n\
                      31 22 8:2 /lib/a\\040b /host/var rw - ext4 /dev/sdb1 rw\n";
        let found = |path: &str| find(mounts, Path::new(path));
        let mount = |source: &str, is_part| {
            Some(Mount {
                source: source.into(),
                is_part,
            })
        };
        assert_eq!(found("/host/opt/cni/bin"), mount("/opt/cni/bin", true));
        assert_eq!(found("/host/opt/cni/bin/x"), mount("/opt/cni/bin/x", true));
        assert_eq!(found("/host/var"), mount("/lib/a b", true));
        assert_eq!(found("/plugins"), mount("/plugins", false));
        assert_eq!(find("", Path::new("/plugins")), None);
    }

    #[test]
    fn only_an_impossible_folder_is_refused() {
        let mount = |source: &str, is_part| Mount {
            source: source.into(),
            is_part,
        };
        let is_probably =
            |source: &str, folder: &str| mount(source, true).is_probably(Path::new(folder));
        assert!(is_probably("/opt/cni/bin", "/opt/cni/bin"));
        assert!(
            is_probably("/cni/bin", "/opt/cni/bin"),
            "/opt is a file system"
        );
        assert!(
            is_probably("/", "/opt/cni/bin"),
            "/opt/cni/bin is a file system"
        );
        assert!(is_probably(
            "/ostree/deploy/x/var/opt/cni/bin",
            "/opt/cni/bin"
        ));
        assert!(!is_probably(
            "/var/lib/rancher/k3s/data/cni",
            "/opt/cni/bin"
        ));
        assert!(!is_probably(
            "/var/lib/rancher/k3s/data/current/bin",
            "/opt/cni/bin"
        ));
        let is_below = |source: &str, is_part, folder: &str| {
            mount(source, is_part).is_below(Path::new(folder))
        };
        assert!(is_below("/opt/cni/bin", true, "/host/opt/cni/bin"));
        assert!(
            is_below("/cni/bin", true, "/host/opt/cni/bin"),
            "the node's /opt is a file system"
        );
        assert!(
            !is_below("/cni/bin", false, "/opt/cni/bin"),
            "/opt is a file system, and this is the node"
        );
        assert!(!is_below("/opt/cni/bin", true, "/opt/cni/bin"));
        assert!(
            !is_below("/@/opt/cni/bin", true, "/opt/cni/bin"),
            "a subvolume"
        );
    }
}
