//! Reading the host and applying a plan to it.
//!
//! ```text
//!  observe ─ needs ─► facts                 executor ─ steps ─► batched requests
//!  transaction ─ record, apply, roll back   features, probe ─ features of the kernel
//!  wait ─ an event                          repair ─ restore flushed rules
//!  by_owner ─ objects by their owners       delegate, within ─ foreign plugins by libcni's rules
//! ```

pub(crate) mod by_owner;
pub mod delegate;
pub mod executor;
pub mod features;
pub mod host;
pub mod observe;
pub mod probe;
pub mod repair;
#[cfg(test)]
mod tests;
pub mod transaction;
pub(crate) mod wait;
pub(crate) mod within;
