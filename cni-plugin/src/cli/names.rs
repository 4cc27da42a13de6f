//! The program's names.

use braid_core::plugins;
use braid_node::ipam;

/// The program's own name.
pub(super) const PROGRAM: &str = "braid";

/// The names of reference plugins whose place the program takes.
pub(super) fn drop_in_names() -> impl Iterator<Item = &'static str> {
    plugins::TYPES.iter().chain(ipam::TYPES).copied()
}
