//! Kernel objects of a network namespace as JSON, for a report. Nothing is decided from them.
//!
//! ```text
//!  socket ─► dump ─► attributes::object, by the tables in rtnl and nft ─► one JSON object each
//! ```
//!
//! A message is shown whole: an attribute without a name is shown by its number, in hexadecimal
//! digits.

mod attributes;
mod listing;
mod nft;
mod rtnl;

pub use listing::Listing;
pub use nft::tables;
pub use rtnl::{Kind, list};
