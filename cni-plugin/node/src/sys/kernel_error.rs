//! Errors of the kernel, with the sentence that it gives.

use nix::errno::Errno;
use std::fmt;

/// Refusal of a request by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelError {
    /// The errno.
    pub errno: Errno,
    /// The sentence of the extended acknowledgement, where the kernel gave one.
    pub ext_ack: Option<String>,
    /// The request was sent and its answer could not be read: it may have been carried out.
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
