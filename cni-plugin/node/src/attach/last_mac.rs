//! The hardware address that a later plugin sets on the interface. A DHCP server ties a lease to
//! the hardware address. So the link gets its final hardware address before a lease is requested.

use super::chain::Runner;
use super::invocation::Wanted;
use braid_core::name::Mac;

/// Returns the last hardware address that the plugins after `item` set; `None` if none of them sets
/// one.
pub(super) fn behind(wanted: &Wanted, item: usize) -> Option<Mac> {
    let mut behind = wanted.chain.items.iter().skip(item + 1).rev();
    behind.find_map(|item| {
        if let Runner::Native(plugin) = &item.work {
            plugin.mac()
        } else {
            None
        }
    })
}
