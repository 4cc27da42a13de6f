//! Plugins that change what an earlier one made.

pub mod bandwidth;
pub mod firewall;
pub mod flannel;
pub mod portmap;
pub mod sbr;
pub mod tuning;
pub mod vrf;
