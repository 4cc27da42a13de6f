//! Types that both [`super::facts`] (the state of the host) and [`super::thing`] (the objects that
//! plans create) use. They depend on neither module.

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
