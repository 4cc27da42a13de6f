//! A Kubernetes cluster with two nodes on this machine for tests. Each node is a network namespace
//! and a mount namespace. Also the other programs that tests need: reference plugins, Multus, etcd
//! and an API server.

#![expect(clippy::print_stdout, reason = "a tool that people read")]

pub mod api_server;
mod arch;
pub mod audit;
pub mod binaries;
pub mod chart;
mod cni;
pub mod control_plane;
pub mod deploy;
pub mod down;
pub mod flannel;
mod image;
pub mod join;
pub mod lan;
mod layout;
pub mod multus;
pub mod node;
mod node_config;
pub mod oci;
mod pki;
pub mod relay;
pub mod sh;
mod state;
pub mod tools;
pub mod up;
pub mod wait;

pub use arch::Arch;
pub use node::Service;
pub use node_config::METRICS;
pub use state::{API_SERVER, CONTROL_PLANE, Cluster, LAN, Node, in_netns};
