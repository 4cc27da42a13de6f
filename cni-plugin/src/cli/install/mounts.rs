//! The folder of the node that a container has mounted, as the kernel shows it.

use std::fs;
use std::path::{Path, PathBuf};

/// The path of `folder` in the file system that it belongs to; `None` where /proc does not show it.
pub(super) fn source(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    find(&fs::read_to_string("/proc/self/mountinfo").ok()?, &folder)
}

/// Looks for the mount that `folder` is in; of several at one place the last one counts (`man 5 proc_pid_mountinfo`).
fn find(mountinfo: &str, folder: &Path) -> Option<PathBuf> {
    let of_line = |line: &str| {
        let mut fields = line.split(' ').skip(3).map(unescaped);
        Some((fields.next()?, fields.next()?))
    };
    let mounts = mountinfo.lines().filter_map(of_line).filter(|(_, place)| folder.starts_with(place));
    let (root, place) = mounts.max_by_key(|(_, place)| place.components().count())?;
    let below = folder.strip_prefix(&place).ok()?;
    Some(if below == Path::new("") { root } else { root.join(below) })
}

/// A blank, a tab, a line's end and a backslash are octal numbers there.
fn unescaped(field: &str) -> PathBuf {
    let mut text = field.to_owned();
    for (code, byte) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(code, byte);
    }
    text.into()
}

/// True unless the path in a file system can't be the node's `folder`: where that is below a mount or a link, only the last
/// two names are the same.
pub(super) fn is_probably(source: &Path, folder: &Path) -> bool {
    let names = |path: &Path| path.components().skip(1).count();
    let (ours, theirs) = (folder.components().rev(), source.components().rev());
    let same = ours.zip(theirs).take_while(|(a, b)| a == b && a.as_os_str() != "/").count();
    same >= names(source).min(names(folder)).min(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_behind_a_mount_is_found() {
        let mounts = "22 1 0:21 / / rw - overlay overlay rw\n\
                      30 22 8:1 /opt/cni/bin /host/opt/cni/bin rw,relatime - ext4 /dev/sda1 rw\n\
                      31 22 8:2 /lib/a\\040b /host/var rw - ext4 /dev/sdb1 rw\n";
        let source = |path: &str| find(mounts, Path::new(path));
        assert_eq!(source("/host/opt/cni/bin"), Some("/opt/cni/bin".into()));
        assert_eq!(source("/host/opt/cni/bin/x"), Some("/opt/cni/bin/x".into()));
        assert_eq!(source("/host/var"), Some("/lib/a b".into()));
        assert_eq!(source("/plugins"), Some("/plugins".into()));
        assert_eq!(find("", Path::new("/plugins")), None);
    }

    #[test]
    fn only_a_folder_that_cannot_be_meant_is_another_one() {
        let is_probably = |source: &str, folder: &str| is_probably(Path::new(source), Path::new(folder));
        assert!(is_probably("/opt/cni/bin", "/opt/cni/bin"));
        assert!(is_probably("/cni/bin", "/opt/cni/bin"), "/opt is a file system");
        assert!(is_probably("/", "/opt/cni/bin"), "/opt/cni/bin is a file system");
        assert!(is_probably("/ostree/deploy/x/var/opt/cni/bin", "/opt/cni/bin"));
        assert!(!is_probably("/var/lib/rancher/k3s/data/cni", "/opt/cni/bin"));
        assert!(!is_probably("/var/lib/rancher/k3s/data/current/bin", "/opt/cni/bin"));
    }
}
