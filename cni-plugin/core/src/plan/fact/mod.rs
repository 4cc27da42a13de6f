//! Values that facts hold, and that things are made of. They know neither.

pub mod addr;
pub mod advertised;
pub mod device;
pub mod fdb;
pub mod firewall;
pub mod host_port;
pub mod link;
pub mod link_ref;
pub mod neigh;
pub mod packet_guard;
pub mod route;
pub mod rule;
pub mod shaped;
pub mod vlan;
pub mod xsk;
