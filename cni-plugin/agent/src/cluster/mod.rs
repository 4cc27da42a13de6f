//! Nodes of the cluster, and the decisions about them. Nothing here waits or changes the host.
//!
//! ```text
//!  node   ─ a Node object: ranges of its pods, addresses
//!  ranges ─ ranges of other nodes that get routes, and the ignored ones with the reason
//!  services ─ ranges of Services
//!  index  ─ all nodes by name, updated by the watch
//!  config ─ the configuration: modes, MTU, VXLAN, log
//! ```

pub mod config;
pub mod index;
pub mod node;
pub mod ranges;
pub mod services;
