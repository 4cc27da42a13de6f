//! Plugins that change what an earlier one made.

pub mod bandwidth;
pub mod portmap;
pub mod tuning;
