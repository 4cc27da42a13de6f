//! Place of a fault in a JSON text.

/// One step of a path into a JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPart {
    /// Key of an object's field, in any ASCII case.
    Key(String),
    /// Index of a list's item, from 0.
    Index(usize),
}

/// Place of a fault: a value in the JSON, or a position in text that is not JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultPlace {
    /// Path from the root of the document to the faulty value; empty for the root itself.
    Path(Vec<PathPart>),
    /// Line and column, both from 1, in text that is not JSON.
    Position {
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
    },
}

impl FaultPlace {
    /// Prepends `part` to a path; a position stays unchanged.
    #[must_use]
    pub fn within(self, part: PathPart) -> Self {
        match self {
            Self::Path(mut path) => {
                path.insert(0, part);
                Self::Path(path)
            }
            Self::Position { .. } => self,
        }
    }
}
