//! Acceptance of pods in chains of other programs that drop all other forwarded packets.

use crate::error::Error;
use braid_node::effect::cluster_forward;
use ipnet::IpNet;

/// Accepts packets from and to pods: ranges of this node and of others. Deletes rules that are no
/// longer needed. Asks `may_change` before it changes a chain. Returns the changed chains.
pub fn accept(
    ranges: &[IpNet],
    may_change: &mut dyn FnMut(&str) -> bool,
) -> Result<Vec<String>, Error> {
    let changed = cluster_forward::ensure(ranges, may_change)
        .map_err(|err| Error::new("accept pods", err))?;
    for chain in &changed {
        tracing::info!(
            chain,
            "changed the rules for pods in another program's chain"
        );
    }
    Ok(changed)
}
