//! Operations that failed.

use std::fmt::{Display, Formatter};

/// An operation that failed, with the reason. The agent tries it again, so callers only log it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    doing: String,
    why: String,
}

impl Error {
    /// Returns an error of this operation.
    pub fn new(doing: impl Display, why: impl Display) -> Self {
        Self {
            doing: doing.to_string(),
            why: why.to_string(),
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.doing, self.why)
    }
}

impl std::error::Error for Error {}
