//! Plugins that create an interface, or move one into the container.

pub mod bridge;
mod child;
mod device;
pub mod dummy;
pub mod host_device;
pub mod ipvlan;
pub mod loopback;
pub mod macvlan;
pub mod netkit;
pub mod ptp;
pub mod tap;
pub mod vlan;
pub mod vxlan;
