//! A list of the kernel's objects, of bounded length.

use serde_json::Value;

/// Maximum number of objects in a listing. A node with all routes of the internet has a million.
pub(super) const MOST: usize = 20_000;

/// Objects of one kind.
#[derive(Debug, Default, PartialEq)]
pub struct Listing {
    /// The objects, in the kernel's order.
    pub objects: Vec<Value>,
    /// Number of further objects, which are left out.
    pub left_out: usize,
}
