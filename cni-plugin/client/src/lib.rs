//! Client of the API server and of the kubelet, for plugin calls without an agent.
//!
//! ```text
//!  call ─► standard input ─► serve ─┬─► api ─► API server
//!                                   └─► kubelet: the devices of pods
//! ```
//!
//! `braid_node::source::client::protocol` has the messages.

#![deny(clippy::wildcard_enum_match_arm)]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod api;
pub mod kubelet;
mod runtime;
mod serve;

pub use serve::serve;
