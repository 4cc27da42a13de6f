//! Files in which other programs read about an attachment.

use super::state::{State, Verb, refuse_if};
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A file that describes an attachment to another program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Path of the file.
    pub path: String,
    /// Content of the file.
    pub text: String,
}

impl State for Note {
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match verb {
            Verb::Add => write!(f, "# write {}: {}", self.path, self.text),
            Verb::Del => write!(f, "rm {}", self.path),
        }
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::File(self.path.clone())]
    }

    /// Checks only that the file exists: another interface of the container may have overwritten
    /// it.
    fn holds(&self, facts: &Facts) -> Result<(), String> {
        refuse_if(!facts.files.contains_key(&self.path), || {
            format!("file {} is missing", self.path)
        })
    }
}
