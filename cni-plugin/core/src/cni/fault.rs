//! Place of a fault in a JSON text.

/// A step from a value to a value inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPart {
    /// Field of an object. Keys match in any ASCII case.
    Key(String),
    /// Item of a list, from 0.
    Index(usize),
}

/// Place of a fault: a value, or a position in a text that is not JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultPlace {
    /// Steps from the whole text to the value; empty for the whole text.
    Path(Vec<PathPart>),
    /// Line and column, both from 1.
    Position {
        /// Line.
        line: usize,
        /// Column in bytes.
        column: usize,
    },
}

impl FaultPlace {
    /// Returns the place seen from the enclosing value. A position stays.
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
