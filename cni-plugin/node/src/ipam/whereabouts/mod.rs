//! Addresses that are unique in the cluster, in Whereabouts' objects. No network uses them yet: the
//! client of the API server and the journal on disk are missing.
//!
//! ```text
//!  PoolRange ─► Session: Store (journal) + Api (pool, reservations) ─► address
//! ```

pub mod api;
pub mod session;

#[cfg(test)]
mod tests;
