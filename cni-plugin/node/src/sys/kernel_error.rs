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

impl KernelError {
    /// The kernel's sentence, or what the errno means.
    pub fn sentence(&self) -> &str {
        self.ext_ack.as_deref().unwrap_or_else(|| self.errno.desc())
    }

    /// True if it passes by itself, so that the same call may succeed later.
    pub fn passes(&self) -> bool {
        const PASSING: &[Errno] = &[
            Errno::EAGAIN,
            Errno::EBUSY,
            Errno::EINTR,
            Errno::ENOBUFS,
            Errno::ETIMEDOUT,
            // A program that is being installed.
            Errno::ETXTBSY,
        ];
        PASSING.contains(&self.errno)
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (kernel: \"{}\")", self.errno, self.sentence())
    }
}

impl std::error::Error for KernelError {}

impl From<Errno> for KernelError {
    fn from(errno: Errno) -> Self {
        Self { errno, ext_ack: None, unanswered: false }
    }
}
