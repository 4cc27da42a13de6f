//! The agent of a node: keeps the default network and the routes to other nodes right.
//!
//! ```text
//!  feeds ─► cluster (values) ─► network: fabric, masquerading, conflist ─► kernel, file
//!                │                                             │
//!                └───────────── agent: the loop ───────────────┴─► health
//!                                     └─► credentials: token and kubeconfig for calls
//!                                     └─► events, log
//!  watches ─► serve: caches ─► socket: pods, networks and claims for calls
//! ```
//!
//! One thread runs everything. The plugin call does not depend on the agent.

#![deny(clippy::wildcard_enum_match_arm)]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod agent;
mod api;
pub mod cluster;
pub mod configuration;
pub mod credentials;
mod error;
pub mod events;
mod feeds;
pub mod health;
pub mod log;
pub mod network;
mod procfs;
mod removal;
pub mod serve;
pub mod watch;

pub use braid_core::k8s::ObjectName;
pub use error::Error;

use cluster::config::Overrides;
use credentials::Paths;
use std::fmt::{Display, Formatter};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Options of the agent.
#[derive(Debug, Clone)]
pub struct Options {
    /// File with address and credentials of the API server. Without it, the agent uses the service
    /// account of its pod.
    pub kubeconfig: Option<PathBuf>,
    /// Name of the node.
    pub node_name: String,
    /// Place of the configuration.
    pub config: Source,
    /// Values of the environment, which precede the configuration.
    pub overrides: Overrides,
    /// Conflist to write.
    pub conflist: PathBuf,
    /// Files with which a call queries the API server. The conflist names the kubeconfig.
    pub credentials: Paths,
    /// Service account of the agent and of calls.
    pub account: Account,
    /// Address of `/healthz` and `/readyz`.
    pub health_address: SocketAddr,
    /// Deletes the agent's state on the node, and sets up nothing.
    pub is_removal: bool,
}

/// Place of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Key `config.yaml` of a `ConfigMap`.
    ConfigMap(ObjectName),
    /// A file.
    File(PathBuf),
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ConfigMap(map) => write!(f, "ConfigMap {}/{}", map.namespace, map.name),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Display for Account {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "service account {}/{}", self.namespace, self.name)
    }
}

/// Runs the agent until SIGTERM or SIGINT. It logs to standard error. The caller has only one
/// thread.
pub fn run(options: &Options) -> Result<(), Error> {
    let log = log::Log::start();
    procfs::make_writable()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|err| Error::new("start the runtime", err))?;
    if options.is_removal {
        runtime.block_on(removal::run(options))
    } else {
        runtime.block_on(agent::run(options, log))
    }
}
