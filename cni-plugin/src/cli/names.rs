//! Names of the program.

use braid_core::plugins;
use braid_node::ipam;
use braid_node::source::client::protocol;

/// Name of the program.
/// File name of the agent and of the client of calls, beside the program.
pub(super) const COMPANION: &str = protocol::PROGRAM;
pub(super) const PROGRAM: &str = "braid";

/// Names of the reference plugins that the program replaces.
pub(super) fn drop_in_names() -> impl Iterator<Item = &'static str> {
    plugins::TYPES.iter().chain(ipam::TYPES).copied()
}
