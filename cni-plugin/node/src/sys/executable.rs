//! The file that this process runs.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// This program, also where its file was replaced meanwhile.
pub const OWN: &str = "/proc/self/exe";

/// True if a file is this program: by another name, or a copy of it. Only a file as long as this one is read.
pub fn is_own(file: &Path, meta: &Metadata) -> bool {
    let Ok(own) = fs::metadata(OWN) else { return false };
    let is_same = (own.dev(), own.ino()) == (meta.dev(), meta.ino());
    is_same || own.len() == meta.len() && matches!((fs::read(OWN), fs::read(file)), (Ok(own), Ok(its)) if own == its)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_and_a_copy_are_this_program_and_another_of_its_length_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        symlink(OWN, at("link")).expect("linked");
        let mut bytes = fs::read(OWN).expect("read");
        fs::write(at("copy"), &bytes).expect("written");
        *bytes.last_mut().expect("not empty") ^= 1;
        fs::write(at("other"), &bytes).expect("written");
        let is_own = |name: &str| is_own(&at(name), &fs::metadata(at(name)).expect("there"));
        assert_eq!(["link", "copy", "other"].map(is_own), [true, true, false]);
    }
}
