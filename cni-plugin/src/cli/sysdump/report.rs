//! The report: an archive, and errors of the parts that could not be read.

use super::archive::Archive;
use braid_node::snapshot::Listing;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};

/// A report under construction. A failure of the archive ends it, a failure of a part does not.
pub(super) struct Report<W: Write> {
    archive: Archive<W>,
    errors: String,
}

impl<W: Write> Report<W> {
    /// Starts a report.
    pub(super) fn new(archive: Archive<W>) -> Self {
        Self {
            archive,
            errors: String::new(),
        }
    }

    /// Adds a line to the errors.
    pub(super) fn error(&mut self, sentence: impl Display) {
        self.errors += &sentence.to_string();
        self.errors += "\n";
    }

    /// Adds a file.
    pub(super) fn file(&mut self, name: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        self.archive.add(name, content.as_ref())
    }

    /// Adds a file, or an error if it could not be read.
    pub(super) fn part(
        &mut self,
        name: &str,
        content: Result<impl AsRef<[u8]>, impl Display>,
    ) -> io::Result<()> {
        match content {
            Ok(content) => self.file(name, content),
            Err(err) => {
                self.error(format_args!("{name}: {err}"));
                Ok(())
            }
        }
    }

    /// Adds a JSON array, with a line for each object.
    pub(super) fn list(&mut self, name: &str, objects: &[impl Serialize]) -> io::Result<()> {
        let mut lines = Vec::new();
        for object in objects {
            lines.push(serde_json::to_string(object)?);
        }
        self.file(name, format!("[\n{}\n]\n", lines.join(",\n")))
    }

    /// Adds a listing of the kernel's objects.
    pub(super) fn listing(
        &mut self,
        name: &str,
        listing: Result<Listing, impl Display>,
    ) -> io::Result<()> {
        match listing {
            Ok(Listing { objects, left_out }) => {
                if left_out > 0 {
                    self.error(format_args!(
                        "{name}: {left_out} further objects are left out"
                    ));
                }
                self.list(name, &objects)
            }
            Err(err) => {
                self.error(format_args!("{name}: {err}"));
                Ok(())
            }
        }
    }

    /// Adds the errors and ends the archive.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.archive.add("errors.txt", self.errors.as_bytes())?;
        self.archive.finish()
    }
}
