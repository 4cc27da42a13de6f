//! The node's file system as this process sees it: below `--root`, where a container has only the
//! mounted folders.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links that the kernel follows in one path.
const MAX_LINKS: usize = 40;

/// Presence of a path on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It exists.
    Here,
    /// It does not exist.
    Missing,
    /// Unknown, because its folder is not mounted here.
    Unseen,
}

/// Folder in which this process sees the node's `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    folder: PathBuf,
    /// True if all folders of the node are visible.
    is_node: bool,
}

impl Root {
    /// Returns the node's files below `root`. If it is `/`, this process runs on the node itself.
    pub fn new(root: &Path) -> Self {
        Self {
            folder: root.to_owned(),
            is_node: root == Path::new("/"),
        }
    }

    /// Returns the node's files for a process that may run in a container, in which the mounted
    /// folders have the node's paths.
    pub fn of_container() -> Self {
        Self {
            folder: PathBuf::from("/"),
            is_node: false,
        }
    }

    /// True if this process runs on the node itself.
    pub fn is_node(&self) -> bool {
        self.is_node
    }

    /// Returns the node's path for a path of this process.
    pub fn of_node(&self, seen: &Path) -> PathBuf {
        seen.strip_prefix(&self.folder)
            .map_or_else(|_| seen.to_owned(), |below| Path::new("/").join(below))
    }

    /// Returns the path of this process for a node's path. Links resolve as on the node.
    pub fn seen(&self, path: &Path) -> PathBuf {
        if self.folder == Path::new("/") {
            path.to_owned()
        } else {
            self.folder.join(resolved(&self.folder, path))
        }
    }

    /// Returns the presence of a path on the node.
    pub fn presence(&self, path: &Path) -> Presence {
        let seen = self.seen(path);
        let is_known = self.is_node() || seen.parent().is_some_and(Path::is_dir);
        match (seen.exists(), is_known) {
            (true, _) => Presence::Here,
            (false, true) => Presence::Missing,
            (false, false) => Presence::Unseen,
        }
    }

    /// Returns the names in a folder of the node, in any order. Empty if it can't be read.
    pub fn file_names(&self, folder: &Path) -> Vec<String> {
        file_names(&self.seen(folder))
    }
}

/// Returns the names in a folder, in any order. Empty if it can't be read.
pub fn file_names(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        names.extend(entry.file_name().into_string());
    }
    names
}

/// Returns the names in a path, with `..` but without `/` and `.`.
fn parts(path: &Path) -> Vec<OsString> {
    let mut parts = Vec::new();
    for part in path.components() {
        if matches!(part, Component::Normal(_) | Component::ParentDir) {
            parts.push(part.as_os_str().to_owned());
        }
    }
    parts
}

/// Returns the path below `root` with all links resolved.
fn resolved(root: &Path, path: &Path) -> PathBuf {
    let (mut done, mut left, mut links) = (PathBuf::new(), VecDeque::from(parts(path)), 0);
    while let Some(part) = left.pop_front() {
        if part == ".." {
            done.pop();
            continue;
        }
        match fs::read_link(root.join(&done).join(&part)) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                if target.is_absolute() {
                    done = PathBuf::new();
                }
                for part in parts(&target).into_iter().rev() {
                    left.push_front(part);
                }
            }
            Ok(_) | Err(_) => done.push(part),
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn link_of_the_node_is_resolved_within_the_nodes_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let path_of = |path: &str| dir.path().join(path);
        fs::create_dir_all(path_of("var/opt/bin")).expect("a folder");
        symlink("/var/opt", path_of("opt")).expect("a link");
        symlink("../bin", path_of("var/opt/bin/same")).expect("a link");
        symlink("/data/1/cni", path_of("var/opt/bin/gone")).expect("a link");
        symlink("loop", path_of("var/opt/bin/loop")).expect("a link");
        fs::write(path_of("var/opt/bin/braid"), "").expect("a file");
        let root = Root::new(dir.path());
        assert_eq!(
            root.seen(Path::new("/opt/bin/same/braid")),
            path_of("var/opt/bin/braid")
        );
        assert_eq!(
            root.seen(Path::new("/../opt/./bin")),
            path_of("var/opt/bin")
        );
        let presence = |path: &str| root.presence(Path::new(path));
        assert_eq!(presence("/opt/bin/same/braid"), Presence::Here);
        assert_eq!(presence("/opt/bin/none"), Presence::Missing);
        assert_eq!(
            presence("/opt/bin/gone"),
            Presence::Unseen,
            "no such folder is mounted"
        );
        assert_eq!(presence("/opt/bin/loop"), Presence::Missing);
        assert_eq!(
            Root::new(Path::new("/")).presence(&path_of("data/1/cni")),
            Presence::Missing
        );
        assert_eq!(root.of_node(&path_of("opt/bin")), Path::new("/opt/bin"));
        assert_eq!(root.of_node(Path::new("/plugins")), Path::new("/plugins"));
    }
}
