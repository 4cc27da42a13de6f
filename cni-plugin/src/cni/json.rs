//! JSON as Go's decoder reads it: keys match in any case, the last duplicate wins, `null` leaves the default.

use super::error::Error;

/// A JSON value that keeps the order and the duplicates of its keys.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`, which leaves the default.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(serde_json::Number),
    /// A string.
    String(String),
    /// A list.
    Array(Vec<Json>),
    /// An object, in the order written.
    Object(Vec<(String, Json)>),
}
