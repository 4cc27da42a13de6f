//! The agent of a node: keeps the default network and the routes to other nodes right.
//!
//! ```text
//!  feeds ─► cluster (values) ─► network: fabric, masquerading, conflist ─► kernel, file
//!                │                                             │
//!  notifications of the kernel ─► repair ─┤                    │
//!                └───────────── agent: the loop ───────────────┴─► health
//!                                     └─► credentials: token and kubeconfig for calls
//!                                     └─► events, log
//!  watches ─► serve: caches ─► socket: pods, networks and claims for calls
//!                      └─► reconcile: networks of running pods
//!  reports of calls, records, leases ─► metrics
//!  records, leases ─► garbage: of containers that are gone
//!  links ─► dra: devices of the node, as ResourceSlices
//! ```
//!
//! One thread runs everything but work that blocks: changes of running pods, garbage, and reads for
//! metrics. The plugin call does not depend on the agent.

#![deny(clippy::wildcard_enum_match_arm)]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod addresses;
mod agent;
mod api;
pub mod cluster;
mod condition;
pub mod configuration;
pub mod credentials;
mod dra;
mod error;
pub mod events;
mod feeds;
mod garbage;
pub mod health;
pub mod kubelet;
pub mod log;
pub mod metrics;
pub mod network;
mod options;
mod private_socket;
mod procfs;
pub mod reconcile;
mod recorded;
mod removal;
pub mod repair;
mod reported;
pub mod serve;
mod sight;
pub mod watch;
mod web;

pub use braid_core::k8s::ObjectName;
pub use error::Error;
pub use options::{Account, Options, Paths, Source};

use braid_node::sys::lock;
use std::time::Duration;

/// Longest wait after a signal for changes of running pods. The next agent completes the others.
const LAST_WORK: Duration = Duration::from_secs(3);

/// Runs the agent until SIGTERM or SIGINT. It logs to standard error. The caller has only one
/// thread.
pub fn run(options: &Options) -> Result<(), Error> {
    let log = log::Log::start();
    procfs::make_writable()?;
    lock::wait_in_threads();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|err| Error::new("start the runtime", err))?;
    let ended = if options.is_removal {
        runtime.block_on(removal::run(options))
    } else {
        runtime.block_on(agent::run(options, log))
    };
    runtime.shutdown_timeout(LAST_WORK);
    ended
}
