//! The error of reading and changing the host.

use crate::sys::netlink::KernelError;
use crate::sys::netns::NetNsError;
use braid_core::cni::bounds::listed;
use braid_core::plan::Step;
use nix::errno::Errno;
use std::fmt;
use std::io;

/// A failure while reading or changing the host.
#[derive(Debug, Clone)]
pub struct Error {
    /// Action that failed, with its object.
    pub doing: String,
    /// The kernel's answer.
    pub cause: KernelError,
}

impl Error {
    /// A failure of `doing`.
    pub fn new(doing: impl Into<String>, cause: impl Into<KernelError>) -> Self {
        Self { doing: doing.into(), cause: cause.into() }
    }

    /// A failure of steps, which are named by their commands.
    pub fn of_steps<'a>(steps: impl IntoIterator<Item = &'a Step>, cause: KernelError) -> Self {
        let commands =
            steps.into_iter().flat_map(|step| step.to_string().lines().map(str::to_owned).collect::<Vec<_>>());
        Self { doing: listed(commands), cause }
    }

    /// The same error said from further out: `outer: inner`.
    pub(crate) fn context(self, outer: &str) -> Self {
        Self { doing: format!("{outer}: {}", self.doing), ..self }
    }

    /// Joins action and cause to one sentence, for a step whose own text says what was being done.
    pub(crate) fn within_step(self) -> KernelError {
        let sentence = format!("{}: {}", self.doing, self.cause.sentence());
        KernelError { ext_ack: Some(sentence), ..self.cause }
    }

    /// A failed file operation.
    pub fn io(doing: impl Into<String>, err: &io::Error) -> Self {
        let otherwise = if err.kind() == io::ErrorKind::TimedOut { Errno::ETIMEDOUT } else { Errno::EIO };
        let errno = err.raw_os_error().map_or(otherwise, Errno::from_raw);
        let ext_ack = err.raw_os_error().is_none().then(|| err.to_string());
        Self { doing: doing.into(), cause: KernelError { ext_ack, ..errno.into() } }
    }
}

impl From<NetNsError> for Error {
    fn from(err: NetNsError) -> Self {
        match err {
            NetNsError::Gone(path) => Self::new(format!("open network namespace {}", path.display()), Errno::ENOENT),
            NetNsError::Io { op, path, source } => {
                Self::io(format!("{op} network namespace {}", path.display()), &source)
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.cause)
    }
}

impl From<Error> for braid_core::cni::Error {
    fn from(err: Error) -> Self {
        Self::because(err.to_string(), err.cause.passes())
    }
}

impl From<KernelError> for braid_core::cni::Error {
    fn from(err: KernelError) -> Self {
        Self::because(err.to_string(), err.passes())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
