//! braid attaches containers to networks: the CNI protocol, its plugins and their IPAM in one process.
//!
//! ```text
//!  env+stdin ─► cni::Request ─► plugins::Config ─┐
//!                                                ├─► plan::Step list ─► apply ─► cni::AddResult
//!  host ──────► apply::observe ─► plan::Facts ───┤     (pure data)      │ undo on failure
//!  store ─────► ipam::Lease ─────────────────────┘                      └─► record (DEL, CHECK, GC)
//! ```
//!
//! `attach` walks that picture for each verb; `cli` holds the faces for people. ARCHITECTURE.md has the rules.

pub mod apply;
pub mod attach;
pub mod cli;
pub mod cni;
pub mod entry;
pub mod ipam;
pub mod plan;
pub mod plugins;
pub mod sys;
