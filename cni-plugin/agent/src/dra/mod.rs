//! Devices of this node: its links, offered to the scheduler as ResourceSlices, and the claims that got
//! them.
//!
//! ```text
//!  agent ─► wish: settings, Node, obstacle ─┐
//!  notifications about links ───────────────┼─► task ─► facts ─► contents ─┐
//!  watch of the node's slices ─► slices ────┘    │                         ├─► changes ─► API server
//!                                  └─────────────│─────────────────────────┘
//!                                              state
//!                                                ▼
//!  kubelet ─► plugin ─► driver: claim, pod, networks, links ─► decision ─► claims: a file each ─► ADD
//!  claims, records of calls ─► statuses ─► status of the claims
//! ```
//!
//! The end of the agent changes no slice and no file.

mod claims;
mod driver;
mod facts;
mod fault;
mod health;
mod interfaces;
mod known;
mod objects;
mod plugin;
mod slices;
mod state;
mod statuses;
mod task;
mod traffic;
mod wish;

pub(crate) use claims::Claims;
pub(crate) use objects::Objects;
pub(crate) use task::start;
pub(crate) use wish::{Wish, Wishes};
