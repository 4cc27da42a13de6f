//! Nodes of the cluster, and the decisions about them. Nothing here waits or changes the host.
//!
//! ```text
//!  node   ─ a Node object: ranges of its pods, addresses
//!  flannel ─ flannel's annotations of a Node
//!  ranges ─ ranges of other nodes that get routes, and the ignored ones with the reason
//!  services ─ ranges of Services
//!  index  ─ all nodes by name, updated by the watch
//!  config ─ the configuration: modes, MTU, VXLAN, log
//!  objects  ─ objects for calls by name, updated by their watches
//!  pods     ─ a pod: the fields that calls read
//!  networks ─ networks and IPAMClaims: the fields that calls read
//! ```

pub mod config;
pub mod flannel;
pub mod index;
pub mod networks;
pub mod node;
pub mod objects;
pub mod pods;
pub mod ranges;
pub mod services;
