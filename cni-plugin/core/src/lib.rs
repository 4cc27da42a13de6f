//! Decisions without side effects: the CNI protocol, Kubernetes networks, plugins, IPAM, and plans.
//!
//! This crate neither reads nor changes the host: no file, socket, process, thread or clock. So a
//! plan can be printed, compared, recorded and undone without root. `clippy.toml` lists the refused
//! calls.

#![deny(clippy::wildcard_enum_match_arm)]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod cni;
pub mod dra;
pub mod ipam;
pub mod k8s;
pub mod kernel_numbers;
pub mod lint;
pub mod name;
pub mod plan;
pub mod plugins;
