//! The steps of a plan.

/// Which network namespace a step acts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ns {
    /// The plugin's own.
    Host,
    /// The container's.
    Pod,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {}
