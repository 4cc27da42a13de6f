//! Files that describe an attachment to another program.

use super::Effect;
use crate::kernel::Kernel;
use crate::{Cause, Context};
use braid_core::plan::thing::Note;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

impl Effect for Note {
    /// Writes the file in place, as the other program does. So a killed call leaves no temporary
    /// file.
    fn add(&self, _kernel: &mut Kernel) -> Result<(), Cause> {
        let path = Path::new(&self.path);
        let folder = path.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.doing(format_args!("create folder {}", folder.display()))?;
        let write = || {
            let mut file = File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(path)?;
            file.write_all(self.text.as_bytes())
        };
        Ok(write().doing(format_args!("write {}", self.path))?)
    }

    fn del(&self, _kernel: &mut Kernel) -> Result<(), Cause> {
        match fs::remove_file(&self.path) {
            Err(err) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&err.kind()) => {
                Ok(())
            }
            removed => Ok(removed.doing(format_args!("remove {}", self.path))?),
        }
    }

    fn is_several(&self) -> bool {
        true
    }
}
