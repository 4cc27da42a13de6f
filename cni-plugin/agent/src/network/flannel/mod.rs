//! Mode `flannel`: replaces flanneld on this node and works with flanneld on the others.
//!
//! ```text
//!  ConfigMap kube-flannel-cfg, or file, or this node ─► settings: net_conf ─┐
//!  Nodes with flannel's annotations ────────────────────────────────────────┴─► plan
//!  plan ─► routes, neighbours, FDB entries, link (fabric)    one comparison for each family
//!       ─► /run/flannel/subnet.env (subnet_file), annotations of the own Node
//! ```
//!
//! Either program takes over from the other: links have flanneld's names, settings and MACs, and
//! flanneld replaces the agent's routes.

mod compare;
mod net_conf;
mod node;
mod plan;
mod settings;
mod subnet_file;
#[cfg(test)]
mod tests;

pub use node::{Flannel, Network};
pub use settings::KEPT;
