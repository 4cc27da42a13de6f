//! Errors of the kernel, with the kernel's message.

use nix::errno::Errno;
use std::fmt;

/// Error of a request to the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelError {
    /// The errno.
    pub errno: Errno,
    /// Message in the extended acknowledgement, if present.
    pub ext_ack: Option<String>,
    /// True if the request was sent, but its reply could not be read. The request may have been
    /// executed.
    pub unanswered: bool,
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = self.ext_ack.as_deref().unwrap_or_else(|| self.errno.desc());
        write!(f, "{:?} (kernel: \"{sentence}\")", self.errno)
    }
}

impl std::error::Error for KernelError {}

impl From<Errno> for KernelError {
    fn from(errno: Errno) -> Self {
        Self {
            errno,
            ext_ack: None,
            unanswered: false,
        }
    }
}
