//! The decisions: the CNI protocol, networks of Kubernetes, plugins, the pure part of their IPAM,
//! and plans as values.
//!
//! Nothing here reads or changes the host: no file, socket, process, thread or clock. So a plan can
//! be printed, compared, recorded and undone without root. `clippy.toml` lists what is refused.

#![deny(clippy::wildcard_enum_match_arm)]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod cni;
pub mod ipam;
pub mod k8s;
pub mod kernel_numbers;
pub mod name;
pub mod plan;
pub mod plugins;
