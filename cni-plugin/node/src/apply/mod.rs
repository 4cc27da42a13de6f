//! Reading the host, and carrying out a plan on it.
//!
//! ```text
//!  kernel ─ the sockets of one call         observe ─ needs ─► facts
//!  executor ─ steps ─► batched requests     transaction ─ record, apply, roll back
//!  effect ─ of each kind of thing, its encoding and its observation
//!  features, probe ─ what the kernel has    wait ─ an event; slot ─ who shares a program
//!  record ─ what was done, on tmpfs         delegate, within ─ foreign plugins by libcni's rules
//!  holder ─ the container behind an owner    owned ─ what the kernel has of whom
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
