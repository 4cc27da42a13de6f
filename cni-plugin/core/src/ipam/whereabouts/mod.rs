//! The IPAM plugin `whereabouts`: addresses that are unique in the cluster, in the objects of
//! Whereabouts and beside it.
//!
//! ```text
//!  config ─► ranges ─┐
//!  pool (API) ───────┼─► journal: own, taken, wanted ─► change: one JSON Patch ─► pool
//!  boot, owner ──────┘
//! ```
//!
//! No address is in two containers:
//!
//! 1. A container has an address only while the pool has an entry of its node at it: with its id, or
//!    held by the node. The journal has the address before the API server, and the API server before
//!    the kernel.
//! 2. An entry goes only after its container's kernel state is gone, by a change that tests the id. For
//!    a node that is certainly gone (`fence`), any other node makes this change.
//! 3. Each change of a pool is one JSON Patch. It tests the previous text of this node's annotation,
//!    and that each added offset is free. So the API server orders all changes, and of two requests
//!    with the same previous text, one that was given up among them, one succeeds.

pub mod api;
pub mod change;
pub mod claims;
pub mod config;
pub mod fence;
pub mod finish;
pub mod flat;
pub mod hold;
pub mod inventory;
pub mod journal;
pub mod last;
pub mod names;
mod numbers;
pub mod others;
pub mod pods;
pub mod pool;
pub mod programs;
pub mod range;
pub mod refused;
pub mod steps;
pub mod usage;
pub mod waiting;

pub use config::WhereaboutsConfig;
pub use range::PoolRange;
