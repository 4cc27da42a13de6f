//! Findings about a JSON text, each with the path of its value.

use super::finding::{Finding, Level};
use crate::cni::bounds::shortened;
use crate::cni::{Error, FaultPlace, Json, PathPart};

/// The text that is checked, and its findings so far.
pub(super) struct Judge<'a> {
    /// The parsed text.
    pub(super) json: &'a Json,
    /// Findings so far.
    pub(super) findings: Vec<Finding>,
}

impl Judge<'_> {
    /// Adds a finding about the value at `path`.
    pub(super) fn note(&mut self, level: Level, path: &[PathPart], what: impl Into<String>) {
        let value = path.iter().try_fold(self.json, inside);
        let keys = path.iter().rev().find_map(|part| {
            if let PathPart::Key(key) = part {
                Some(key.clone())
            } else {
                None
            }
        });
        self.findings.push(Finding {
            level,
            place: FaultPlace::Path(path.to_vec()),
            key: keys.unwrap_or_default(),
            value: match value {
                Some(value) if !path.is_empty() => told(&value.to_string()),
                Some(_) | None => String::new(),
            },
            what: what.into(),
        });
    }

    /// Adds an error about the value at `path`. The error's own path is appended to `path`. If the
    /// full path leads to a missing key, the place of the finding is the enclosing object.
    pub(super) fn note_error(&mut self, path: &[PathPart], error: &Error) {
        let mut path = path.to_vec();
        if let FaultPlace::Path(inner) = error.place() {
            path.extend(inner);
        }
        let mut value = self.json;
        let is_there = |part: &&PathPart| {
            let found = inside(value, part);
            value = found.unwrap_or(value);
            found.is_some()
        };
        let len = path.iter().take_while(is_there).count();
        path.truncate(len);
        self.note(Level::Error, &path, error.to_string());
    }
}

/// Returns the field or list item `part` of `json`; `None` if absent.
pub(super) fn inside<'a>(json: &'a Json, part: &PathPart) -> Option<&'a Json> {
    match (part, json) {
        (PathPart::Key(key), json) => json.get(key),
        (PathPart::Index(index), Json::Array(items)) => items.get(*index),
        (PathPart::Index(_), _) => None,
    }
}

/// Returns the step of a path to a field.
pub(super) fn key(key: &str) -> PathPart {
    PathPart::Key(key.to_owned())
}

/// Shortens a value. Objects and lists of objects become empty, because they may contain secrets.
fn told(value: &str) -> String {
    if value.starts_with('{') || value.starts_with("[{") {
        String::new()
    } else {
        shortened(value)
    }
}
