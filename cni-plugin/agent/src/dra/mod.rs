//! Devices of this node: its links, offered to the scheduler as ResourceSlices.
//!
//! ```text
//!  agent ─► wish: settings, Node, obstacle ─┐
//!  notifications about links ───────────────┼─► task ─► facts ─► contents ─┐
//!  watch of the node's slices ─► slices ────┘                              ├─► changes ─► API server
//!                                  └───────────────────────────────────────┘
//! ```
//!
//! The end of the agent changes no slice.

mod facts;
mod slices;
mod task;
mod wish;

pub(crate) use task::start;
pub(crate) use wish::{Wish, Wishes};
