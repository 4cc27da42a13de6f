//! Options of the agent, which its command line sets.

use crate::cluster::config::Overrides;
use braid_core::k8s::ObjectName;
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
    /// Folder of the kubelet, if it is not the usual one.
    pub kubelet_root_dir: Option<PathBuf>,
    /// Service account of the agent and of calls.
    pub account: Account,
    /// Address of `/healthz` and `/readyz`.
    pub health_address: SocketAddr,
    /// Address of `/metrics`.
    pub metrics_address: SocketAddr,
    /// Deletes the agent's state on the node, and sets up nothing.
    pub is_removal: bool,
}

/// Paths of the files with which a call queries the API server.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Folder of `token` and `ca.crt`.
    pub folder: PathBuf,
    /// Kubeconfig of calls.
    pub kubeconfig: PathBuf,
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
