//! Reading the host, and carrying out a plan on it.
//!
//! ```text
//!  kernel ─ the sockets of one call         observe ─ needs ─► facts
//!  executor ─ steps ─► batched requests     transaction ─ record, apply, roll back
//!  features, probe ─ what the kernel has    wait ─ an event
//!  repair ─ what somebody flushed           delegate, within ─ foreign plugins by libcni's rules
//!  owned ─ what the kernel has of whom
//! ```

pub mod delegate;
pub mod executor;
pub mod features;
pub mod host;
pub mod kernel;
pub mod observe;
pub(crate) mod owned;
pub mod probe;
pub mod repair;
pub mod transaction;
pub(crate) mod wait;
pub(crate) mod within;
