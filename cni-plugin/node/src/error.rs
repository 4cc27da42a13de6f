//! Errors of reading and changing the host.

use crate::sys::netlink::KernelError;
use crate::sys::netns::NetNsError;
use braid_core::cni::bounds::listed;
use braid_core::cni::error::passes;
use braid_core::plan::Step;
use nix::errno::Errno;
use std::fmt;
use std::io;
use std::time::Duration;

/// A failure while reading or changing the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The action that failed and its object, for example `lock /run/braid/lock/rules`.
    pub doing: String,
    /// Reason of the failure.
    pub cause: Cause,
}

/// Reason of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The kernel refused a system call or a request.
    Kernel(KernelError),
    /// A file, a program or a service failed, with this message.
    Io(io::ErrorKind, String),
    /// The expected state was not reached in time.
    TimedOut {
        /// The state that lasted until the timeout.
        what: String,
        /// Duration of the wait.
        after: Duration,
    },
    /// A temporary obstacle, described by this message. A later call may succeed.
    Busy(String),
    /// A permanent obstacle, described by this message.
    Refused(String),
    /// The kernel lacks a feature, named by this message.
    Lacking(String),
    /// A nested operation failed, with this error.
    Part(Box<Error>),
}

impl Cause {
    /// Returns the kernel's error at the root, if present.
    pub fn kernel(&self) -> Option<&KernelError> {
        match self {
            Self::Kernel(err) => Some(err),
            Self::Part(err) => err.cause.kernel(),
            Self::Io(..)
            | Self::TimedOut { .. }
            | Self::Busy(_)
            | Self::Refused(_)
            | Self::Lacking(_) => None,
        }
    }

    /// True if the kernel returned one of `errnos`.
    pub fn is(&self, errnos: &[Errno]) -> bool {
        self.kernel().is_some_and(|err| errnos.contains(&err.errno))
    }

    /// True if the cause is transient, so a repeated call may succeed.
    fn passes(&self) -> bool {
        match self {
            Self::Kernel(err) => {
                err.errno == Errno::ENOBUFS || passes(io::Error::from(err.errno).kind())
            }
            Self::Io(kind, _) => passes(*kind),
            Self::TimedOut { .. } | Self::Busy(_) => true,
            Self::Refused(_) | Self::Lacking(_) => false,
            Self::Part(err) => err.cause.passes(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(err) => err.fmt(f),
            Self::TimedOut { what, after } => write!(f, "{what} after {after:?}"),
            Self::Io(_, said) | Self::Busy(said) | Self::Refused(said) | Self::Lacking(said) => {
                f.write_str(said)
            }
            Self::Part(err) => err.fmt(f),
        }
    }
}

impl From<KernelError> for Cause {
    fn from(err: KernelError) -> Self {
        Self::Kernel(err)
    }
}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno.into())
    }
}

impl From<io::Error> for Cause {
    fn from(err: io::Error) -> Self {
        match err.raw_os_error() {
            Some(errno) => Errno::from_raw(errno).into(),
            None => Self::Io(err.kind(), err.to_string()),
        }
    }
}

impl From<Error> for Cause {
    fn from(err: Error) -> Self {
        Self::Part(Box::new(err))
    }
}

impl Error {
    /// Creates the error for the failed action `doing`.
    pub fn new(doing: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self {
            doing: doing.into(),
            cause: cause.into(),
        }
    }

    /// Creates the error for the failed `steps`. The text names each step by its command.
    pub fn of_steps<'a>(steps: impl IntoIterator<Item = &'a Step>, cause: Cause) -> Self {
        let commands = steps.into_iter().flat_map(|step| {
            step.to_string()
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
        Self {
            doing: listed(commands),
            cause,
        }
    }
}

/// Adds the failed operation to a result's error.
pub(crate) trait Context<T> {
    fn doing(self, doing: impl fmt::Display) -> Result<T, Error>;
}

impl<T, E: Into<Cause>> Context<T> for Result<T, E> {
    fn doing(self, doing: impl fmt::Display) -> Result<T, Error> {
        self.map_err(|cause| Error::new(doing.to_string(), cause))
    }
}

impl From<NetNsError> for Error {
    fn from(err: NetNsError) -> Self {
        match err {
            NetNsError::Gone(path) => Self::new(
                format!("open network namespace {}", path.display()),
                Errno::ENOENT,
            ),
            NetNsError::Io { op, path, source } => {
                Self::new(format!("{op} network namespace {}", path.display()), source)
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

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::cni::{Error as Answer, Kind};

    #[test]
    fn cause_decides_the_code_and_only_kernel_errors_are_quoted() {
        let io = |kind: io::ErrorKind| Cause::from(io::Error::new(kind, "held for 60 s"));
        let waited = Cause::TimedOut {
            what: "link eth0 is down".to_owned(),
            after: Duration::from_secs(10),
        };
        for (cause, said, code) in [
            (
                Errno::EPERM.into(),
                "EPERM (kernel: \"Operation not permitted\")",
                Kind::Internal,
            ),
            (
                Errno::ENOBUFS.into(),
                "ENOBUFS (kernel: \"No buffer space available\")",
                Kind::TryAgain,
            ),
            (
                io::Error::from(Errno::ETXTBSY).into(),
                "ETXTBSY (kernel: \"Text file busy\")",
                Kind::TryAgain,
            ),
            (io(io::ErrorKind::TimedOut), "held for 60 s", Kind::TryAgain),
            (io(io::ErrorKind::Other), "held for 60 s", Kind::Internal),
            (waited, "link eth0 is down after 10s", Kind::TryAgain),
            (
                Error::new("lock f", Errno::EBUSY).into(),
                "lock f: EBUSY (kernel: \"Device or resource busy\")",
                Kind::TryAgain,
            ),
        ] {
            assert_eq!(
                Answer::from(Error::new("do", cause)),
                Answer::new(code, format!("do: {said}"))
            );
        }
    }
}
