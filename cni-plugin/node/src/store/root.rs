//! Root folder of a machine's state: `/`, or a test model's folder.

use std::path::{Path, PathBuf};

/// Root folder of this node: `/`.
pub static NODE: Root = Root(None);

/// Root folder of a machine's state; `None` for `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(Option<PathBuf>);

impl Root {
    /// Creates a root that uses `folder` in place of `/`.
    pub fn below(folder: &Path) -> Self {
        Self(Some(folder.to_owned()))
    }

    /// Converts the absolute `path` to a path below this root.
    pub fn at(&self, path: &str) -> PathBuf {
        match &self.0 {
            Some(root) => root.join(path.trim_start_matches('/')),
            None => PathBuf::from(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_its_root() {
        assert_eq!(NODE.at("/run/braid"), Path::new("/run/braid"));
        assert_eq!(
            Root::below(Path::new("/tmp/x")).at("/run/braid"),
            Path::new("/tmp/x/run/braid")
        );
    }
}
