//! Errors and events for pods with networks that do not exist or are refused.

use braid_core::cni::{Error, Kind};
use braid_core::k8s::source::{Event, Severity, SourceError};

/// Reason in the event of a pod whose request is refused.
pub(super) const REFUSED: &str = "NetworkRefused";

/// Returns the event of a pod whose request is refused.
pub(super) fn refusal(reason: &'static str, err: &Error) -> Event {
    Event {
        severity: Severity::Warning,
        reason,
        message: err.to_string(),
    }
}

/// Converts an error of the source. The code is 11 for temporary errors, also if the pod does not
/// exist yet or no longer exists.
pub(super) fn of_source(err: &SourceError) -> Error {
    let code = match err {
        SourceError::NotFound { .. } | SourceError::Passing { .. } => Kind::TryAgain,
        SourceError::Lasting { .. } => Kind::Internal,
    };
    Error::new(code, err.to_string())
}
