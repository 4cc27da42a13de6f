//! Reading the host, and carrying out a plan on it.
//!
//! ```text
//!  observe ─ needs ─► facts                 executor ─ steps ─► batched requests
//!  transaction ─ record, apply, roll back   features, probe ─ abilities of the kernel
//!  wait ─ an event                          repair ─ restore flushed rules
//!  owned ─ objects by their owners          delegate, within ─ foreign plugins by libcni's rules
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
