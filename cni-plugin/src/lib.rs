//! The program: start and end of a call, the command line, and plugin calls.
//!
//! ```text
//!  env+stdin ─► cni::Request ─► plugins::Config ─┐
//!                                                ├─► plan::Step list ─► apply ─► cni::AddResult
//!  host ──────► apply::observe ─► plan::Facts ───┤     (pure data)      │ undo on failure
//!  store ─────► ipam::Lease ─────────────────────┘                      └─► record (DEL, CHECK, GC)
//! ```
//!
//! braid-core decides, braid-node applies. ARCHITECTURE.md has the rules.

#![deny(clippy::wildcard_enum_match_arm)]

#[forbid(unsafe_code)]
pub mod cli;
pub mod entry;
