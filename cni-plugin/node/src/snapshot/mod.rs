//! Kernel objects of a network namespace as JSON, for a report. Nothing is decided from them.
//!
//! ```text
//!  socket ─► dump ─► attributes::object, by the tables in rtnl and nft ─► one JSON object each
//! ```
//!
//! A message is shown whole: an attribute without a name is shown by its number, in hexadecimal
//! digits.

mod attributes;
mod nft;
mod rtnl;

pub use nft::tables;
pub use rtnl::{Kind, list};

use serde_json::Value;

/// Maximum number of objects in a listing. A node with all routes of the internet has a million.
const MOST: usize = 20_000;

/// Objects of one kind.
#[derive(Debug, Default, PartialEq)]
pub struct Listing {
    /// The objects, in the kernel's order.
    pub objects: Vec<Value>,
    /// Number of further objects, which are left out.
    pub left_out: usize,
}
