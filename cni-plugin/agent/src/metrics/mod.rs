//! Metrics of the node, in Prometheus' text format.
//!
//! ```text
//!  agent: repairs, garbage, queue, errors of the API ─► families ─┐
//!  calls: a datagram each ────────────────────────────► calls ────┤
//!  journals of pools ─────────────────────────────────► pools ────┤
//!  prepared claims, links ────────────────────────────► claims ───┤
//!  records, leases, eBPF maps ─► node (values) ───────► scrape ───┴─► server: /metrics
//! ```
//!
//! Every family exists from the start: a family without samples would be missing in queries.

mod calls;
mod claims;
mod families;
mod handle;
mod labels;
mod node;
mod pools;
mod scrape;
mod server;

pub(crate) use calls::receive;
pub(crate) use claims::{Link, Traffic};
pub use handle::Metrics;
pub(crate) use server::serve;
