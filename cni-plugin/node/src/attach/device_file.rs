//! The device information file of an attachment, which plugins read and write (Device Information
//! Specification, 1.1.0).

use crate::source::files;
use braid_core::cni::{Error, Json};
use braid_core::k8s::device_info::parse;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Device information file of one attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFile {
    /// Path, unique to the attachment.
    pub path: PathBuf,
    /// Device information from the device plugin; `None` if it wrote none.
    pub content: Option<Vec<u8>>,
}

impl DeviceFile {
    /// Writes the device plugin's information to the file. If there is none, deletes a file from an
    /// earlier attempt. In both cases creates the folder, as plugins may write the file.
    pub fn write(&self) -> Result<(), Error> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
        made.map_err(|err| failed("create the folder of", &self.path, &err))?;
        match &self.content {
            Some(content) => {
                fs::write(&self.path, content).map_err(|err| failed("write", &self.path, &err))
            }
            None => remove(&self.path),
        }
    }
}

/// Reads the device information; `None` if the file does not exist. Fails if the content is not
/// valid.
pub fn read(path: &Path) -> Result<Option<Json>, Error> {
    let fail = |err: Error| err.context(path.display());
    let files = files::read(path).map_err(fail)?;
    match files.first() {
        Some(file) => Ok(Some(parse(&file.bytes).map_err(fail)?)),
        None => Ok(None),
    }
}

/// Deletes the file. A missing file is not an error.
pub fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, &err)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(what: &str, path: &Path, err: &io::Error) -> Error {
    Error::io(format!("{what} {}: {err}", path.display()))
}
