//! Answers to a pod whose networks can't be found or had.

use braid_core::cni::{Error, Kind};
use braid_core::k8s::source::{Event, Severity, SourceError};

/// Reason of the event of a pod whose request can't be served.
pub(super) const REFUSED: &str = "NetworkRefused";

/// The event of a pod whose request is refused.
pub(super) fn refusal(reason: &'static str, err: &Error) -> Event {
    Event {
        severity: Severity::Warning,
        reason,
        message: err.to_string(),
    }
}

/// Code 11 for what passes, as for a pod that is not there yet or no more.
pub(super) fn of_source(err: &SourceError) -> Error {
    let code = match err {
        SourceError::NotFound { .. } | SourceError::Passing { .. } => Kind::TryAgain,
        SourceError::Lasting { .. } => Kind::Internal,
    };
    Error::new(code, err.to_string())
}
