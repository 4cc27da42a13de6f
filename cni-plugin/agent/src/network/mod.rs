//! Default network of the node and routes to the pods of other nodes.
//!
//! ```text
//!  lookups ─┐
//!  ranges ──┴─► routes: desired ─┬─► changes ─► kernel (rtnetlink)
//!                       present ─┘
//!  own ranges, MTU ─► conflist: text ─► file
//!  own ranges, all ranges ─► masquerade ─► table inet braid-cluster
//!  forwarding: sysctls
//! ```

pub mod conflist;
pub mod forwarding;
pub mod kernel;
pub mod masquerade;
pub mod routes;
