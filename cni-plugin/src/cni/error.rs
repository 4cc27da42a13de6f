//! The error a runtime reads: code, message, details. The code is chosen here and nowhere else.

use std::fmt;

/// Error codes of the CNI specification 1.1.0, section 5, and `8`, which only the reference code has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The configuration's `cniVersion` is not supported.
    IncompatibleVersion,
    /// A field is not supported; the message names key and value.
    UnsupportedField,
    /// The container is not known; the runtime need not call DEL.
    UnknownContainer,
    /// A `CNI_*` variable is missing or wrong.
    InvalidEnv,
    /// Reading or writing failed.
    Io,
    /// The input is not the JSON that was expected.
    Decode,
    /// The configuration was understood, but is wrong.
    InvalidConfig,
    /// `CNI_NETNS` is no network namespace, or the plugin's own.
    InvalidNetns,
    /// A passing condition; the runtime should call again.
    TryAgain,
    /// STATUS: no ADD can be served.
    NotAvailable,
    /// STATUS: ADD can be served, with limited connectivity.
    LimitedConnectivity,
    /// Whatever else went wrong while working.
    Internal,
    /// A code received from a foreign plugin, kept as it came.
    Foreign(u32),
}

/// What a failed verb answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What kind of failure it was.
    pub code: Code,
    /// One sentence that names the thing, the value and the cause.
    pub msg: String,
    /// More text, often empty.
    pub details: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.msg)?;
        if !self.details.is_empty() {
            write!(f, "; {}", self.details)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
