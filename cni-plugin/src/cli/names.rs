//! Names of the program.

use braid_core::plugins;
use braid_node::ipam;

/// Name of the program.
pub(super) const PROGRAM: &str = "braid";

/// Names of the reference plugins that the program replaces.
pub(super) fn drop_in_names() -> impl Iterator<Item = &'static str> {
    plugins::TYPES.iter().chain(ipam::TYPES).copied()
}
