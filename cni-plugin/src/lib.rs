//! braid attaches containers to networks: the CNI protocol, its plugins and their IPAM in one process.
//!
//! ```text
//!  env+stdin ─► cni::Request ─► plugins::Config ─┐
//!                                                ├─► plan::Step list ─► apply ─► cni::AddResult
//!  host ──────► apply::observe ─► plan::Facts ───┤     (pure data)      │ undo on failure
//!  store ─────► ipam::Lease ─────────────────────┘                      └─► record (DEL, CHECK, GC)
//! ```
//!
//! `attach` walks that picture for each verb; `cli` holds the faces for people. Only `sys` and `entry` may say `unsafe`. ARCHITECTURE.md has
//! the rules.

#[forbid(unsafe_code)]
pub mod apply;
#[forbid(unsafe_code)]
pub mod attach;
#[forbid(unsafe_code)]
pub mod cli;
#[forbid(unsafe_code)]
pub mod cni;
pub mod entry;
#[forbid(unsafe_code)]
pub mod ipam;
#[forbid(unsafe_code)]
pub mod k8s;
#[forbid(unsafe_code)]
pub mod name;
#[forbid(unsafe_code)]
pub mod plan;
#[forbid(unsafe_code)]
pub mod plugins;
pub mod source;
pub mod sys;
