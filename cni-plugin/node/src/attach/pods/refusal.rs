//! Errors and events for pods with networks that do not exist or are refused.

use braid_core::cni::{Error, Kind};
use braid_core::k8s::source::{Event, Severity, SourceError};

/// Reason of the event about a refused pod.
pub(super) const REFUSED: &str = "NetworkRefused";

/// Returns the event about a refused pod, with this reason and error.
pub(super) fn refusal(reason: &'static str, err: &Error) -> Event {
    Event {
        severity: Severity::Warning,
        reason: reason.into(),
        message: err.to_string(),
        trace: None,
    }
}

/// Converts an error of the source to a CNI error. The code is 11 (try again later) for temporary
/// errors, and for missing objects, as these may be created later.
pub(super) fn of_source(err: &SourceError) -> Error {
    let code = match err {
        SourceError::NotFound { .. } | SourceError::Passing { .. } => Kind::TryAgain,
        SourceError::Lasting { .. } => Kind::Internal,
    };
    Error::new(code, err.to_string())
}
