//! Plugins that change the interface or the network of an earlier plugin.

pub mod bandwidth;
pub mod firewall;
pub mod flannel;
pub mod portmap;
pub mod sbr;
pub mod tuning;
pub mod vrf;
