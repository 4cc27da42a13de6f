//! Default network of the node and traffic to the pods of other nodes.
//!
//! ```text
//!  ranges, lookups ─┐                     ┌─ probe: answers over the direct path
//!                   └─► peers: desired ◄──┘
//!                            └─► changes ◄─ present
//!                                   └─► drift: which are repairs
//!                                         └─► kernel (rtnetlink)      fabric runs all of this
//!  own ranges, MTU ─► conflist: text ─► file
//!  own ranges, all ranges ─► masquerade ─► table inet braid-cluster
//!  own ranges, all ranges ─► firewall ─► rules in chains of other programs
//!  flannel: links, file and annotations of flanneld, in its mode
//!  forwarding: sysctls
//!  host: all of these, after changes of the cluster or the kernel
//! ```

pub mod changes;
pub mod conflist;
pub mod drift;
pub mod fabric;
pub mod firewall;
pub mod flannel;
pub mod forwarding;
pub mod host;
pub mod kernel;
pub mod mark;
pub mod masquerade;
pub mod mtu;
pub mod peers;
pub mod probe;
pub mod routes;
#[cfg(test)]
mod tests;
pub mod types;
pub mod vxlan;
