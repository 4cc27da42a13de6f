//! Exit status of a command.

/// Exit status of a command that succeeded.
pub(super) const SUCCESS: u8 = 0;
/// Exit status of a command that failed.
pub(super) const FAILURE: u8 = 1;

/// Exit status of a command. An error is one sentence for standard error.
pub(super) type Outcome = Result<u8, Box<dyn std::error::Error>>;
