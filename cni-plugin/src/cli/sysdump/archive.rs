//! The archive: a compressed tar stream, to a new file or to standard output.

use braid_node::sys::private;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tar::{Builder, Header};

/// Mode of each file in the archive.
const FILE_MODE: u32 = 0o600;

/// Target of the archive. The file is deleted if the archive is not completed.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    file: File,
    is_complete: bool,
}

impl Target {
    /// Creates the file, which only root may read. Fails if anything is at the path, a symlink
    /// included: in a folder that others may write to, it may name any file of the node.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = private::options().write(true).create_new(true).open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            is_complete: false,
        })
    }

    /// Writes everything to the disk. Returns the size in bytes.
    pub(super) fn complete(mut self) -> io::Result<u64> {
        self.file.sync_all()?;
        let len = self.file.metadata()?.len();
        self.is_complete = true;
        Ok(len)
    }
}

impl Write for &Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.file).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.file).flush()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// An archive with one folder.
pub(super) struct Archive<W: Write> {
    builder: Builder<GzEncoder<W>>,
    folder: String,
    seconds: u64,
}

impl<W: Write> Archive<W> {
    /// Starts an archive with the folder `folder`.
    pub(super) fn new(to: W, folder: &str, now: SystemTime) -> Self {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            builder: Builder::new(GzEncoder::new(to, Compression::default())),
            folder: folder.to_owned(),
            seconds: since.as_secs(),
        }
    }

    /// Adds a file.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(FILE_MODE);
        header.set_mtime(self.seconds);
        let path = format!("{}/{name}", self.folder);
        self.builder.append_data(&mut header, path, content)
    }

    /// Writes the end of the archive.
    pub(super) fn finish(self) -> io::Result<()> {
        self.builder.into_inner()?.finish()?.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn files_are_in_the_folder_of_the_archive() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes, "braid-sysdump-n-t", SystemTime::now());
        let long = format!("netns/{}/links.json", "c".repeat(150));
        archive.add("version.txt", b"one").expect("added");
        archive.add(&long, b"two").expect("added");
        archive.finish().expect("finished");
        let mut read = Vec::new();
        for entry in tar::Archive::new(GzDecoder::new(&bytes[..]))
            .entries()
            .expect("a tar")
        {
            let mut entry = entry.expect("an entry");
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            read.push((entry.path().expect("a path").display().to_string(), text));
        }
        let expected = [
            ("braid-sysdump-n-t/version.txt".to_owned(), "one".to_owned()),
            (format!("braid-sysdump-n-t/{long}"), "two".to_owned()),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn the_file_is_new_and_private_and_deleted_unless_complete() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.tar.gz");
        drop(Target::create(&path).expect("a file"));
        assert!(!path.exists());
        let target = Target::create(&path).expect("a file");
        (&target).write_all(b"12345").expect("written");
        assert_eq!(target.complete().expect("complete"), 5);
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let link = dir.path().join("link");
        symlink(dir.path().join("elsewhere"), &link).expect("a link");
        for path in [&path, &link] {
            let err = Target::create(path).expect_err("something is there");
            assert_eq!(err.kind(), io::ErrorKind::AlreadyExists);
        }
        assert!(!dir.path().join("elsewhere").exists() && path.exists());
    }
}
