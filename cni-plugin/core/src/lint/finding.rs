//! A fault that the linter found, and its severity.

use crate::cni::FaultPlace;
use std::fmt;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The network works, but maybe not as intended.
    Warning,
    /// Pods that use the network do not start.
    Error,
}

/// A fault in a NetworkAttachmentDefinition or in an annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub level: Level,
    /// Place of the fault in the annotation or in `spec.config`.
    pub place: FaultPlace,
    /// Key of the faulty value; empty if the finding is about the whole text.
    pub key: String,
    /// The faulty value, shortened; may be empty.
    pub value: String,
    /// Description of the fault.
    pub what: String,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Formats a finding without a line number, because only the caller knows the file.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.level)?;
        for part in [&self.key, &self.value] {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.what)
    }
}
