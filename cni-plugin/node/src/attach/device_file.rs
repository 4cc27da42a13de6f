//! The file by which an attachment's plugins are told of its device, and tell of it (device
//! information, 1.1.0).

use crate::source::files;
use braid_core::cni::{Error, Json};
use braid_core::k8s::device_info::parse;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The file of one attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFile {
    /// Its path, which no other attachment has.
    pub path: PathBuf,
    /// The device plugin's words on the device.
    pub content: Option<Vec<u8>>,
}

impl DeviceFile {
    /// Writes what the device plugin says; where it says nothing, takes away what an earlier
    /// attempt may have left. A plugin that is to write it finds its folder.
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

/// Reads what the plugins say of the device, if they do; what is no device information is an error.
pub fn read(path: &Path) -> Result<Option<Json>, Error> {
    let parsed = files::read(path)
        .and_then(|files| files.first().map(|file| parse(&file.bytes)).transpose());
    parsed.map_err(|err| err.context(path.display()))
}

/// Removes the file; missing is success.
pub fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, &err)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(what: &str, path: &Path, err: &io::Error) -> Error {
    Error::io(format!("{what} {}: {err}", path.display()))
}
