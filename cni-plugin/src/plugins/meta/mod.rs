//! Plugins that change what an earlier one made.

pub mod tuning;
