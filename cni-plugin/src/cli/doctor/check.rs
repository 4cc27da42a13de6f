//! One check of `braid doctor`, which `kubectl braid` reads again.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Outcome of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum CheckState {
    Ok,
    Missing,
    /// The check itself failed.
    Unknown,
    /// Information only.
    Note,
}

/// One line of the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cli) struct Check {
    pub(in crate::cli) name: String,
    pub(in crate::cli) state: CheckState,
    /// True if bridge, ptp or macvlan needs the feature.
    pub(in crate::cli) essential: bool,
    /// First kernel version with the feature.
    pub(in crate::cli) since: Cow<'static, str>,
    pub(in crate::cli) needed_by: Cow<'static, str>,
    /// Consequence for users if the feature is missing.
    pub(in crate::cli) without_it: Cow<'static, str>,
    /// Details of the result, or the kernel's error.
    pub(in crate::cli) detail: String,
}

impl Check {
    /// True if no attachment is possible.
    pub(in crate::cli) fn is_fatal(&self) -> bool {
        self.essential && matches!(self.state, CheckState::Missing | CheckState::Unknown)
    }

    /// Returns the details, after the consequence if the feature is missing.
    pub(in crate::cli) fn text(&self) -> String {
        // The cost matters only if the feature is missing.
        let mut text = match self.state {
            CheckState::Missing => self.without_it.to_string(),
            CheckState::Ok | CheckState::Unknown | CheckState::Note => String::new(),
        };
        if !text.is_empty() && !self.detail.is_empty() {
            text.push_str(": ");
        }
        text + &self.detail
    }
}
