//! `cargo xtask cluster`: a real Kubernetes on one machine, each node a network and a mount namespace.

mod binaries;
mod burst;
mod cni;
mod control_plane;
mod deploy;
mod down;
mod hostport_check;
mod image;
mod lan;
mod leftovers;
mod limit_check;
mod node;
mod node_config;
pub(crate) mod own;
mod pki;
mod pods;
mod smoke;
mod state;
mod status_check;
mod up;
mod wait;

use anyhow::Result;
use clap::Subcommand;
pub(crate) use state::Cluster;
use state::Node;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build Kubernetes and containerd from their Go modules, once (7 minutes on two cores)
    Build,
    /// Start a control plane and its nodes, and leave them running
    Up(up::Options),
    /// End all of the cluster's processes and remove its namespaces, mounts and files
    Down,
    /// kubectl as the cluster's administrator
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run a command in a node's namespaces
    Exec {
        node: Node,
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Import an OCI archive into every node's containerd
    Load { archive: PathBuf },
    /// Start many pods at once: time to all Ready, and the runtime's own clock on the network plugin
    Burst(burst::Options),
    /// What a CNI plugin must pass: pods Ready, reachable from both nodes, exec, logs, and nothing left behind
    Smoke(smoke::Options),
    /// Break a node's address store, see the node not Ready, with the plugin's reason, mend it, see it Ready
    StatusCheck(status_check::Options),
    /// Fail unless a pod is held to the limits of its annotations
    LimitCheck,
    /// Fail unless host ports and Services work as Kubernetes' conformance tests demand; needs `up --kube-proxy`
    HostportCheck,
    /// Bring this checkout's braid to the nodes by deploy/braid.yaml
    Deploy(deploy::Options),
    /// Fail unless `kubectl apply` of deploy/braid.yaml brings braid to nodes without it, and its removal takes it back
    DeployCheck,
    /// A node's inner start, inside its namespaces
    #[command(hide = true)]
    Node(node::Options),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.verb {
        Verb::Build => binaries::build(),
        Verb::Up(options) => up::run(options),
        Verb::Down => down::run(),
        Verb::Kubectl { args } => become_command(Cluster::running()?.kubectl(args)),
        Verb::Exec { node, command } => become_command(Cluster::running()?.on(*node, command)?),
        Verb::Load { archive } => up::load(&Cluster::running()?, archive),
        Verb::Burst(options) => burst::run(&Cluster::running()?, options),
        Verb::Smoke(options) => smoke::run(&Cluster::running()?, options),
        Verb::StatusCheck(options) => status_check::run(&Cluster::running()?, options),
        Verb::LimitCheck => limit_check::run(&Cluster::running()?),
        Verb::HostportCheck => hostport_check::run(&Cluster::running()?),
        Verb::Deploy(options) => deploy::run(&Cluster::running()?, options),
        Verb::DeployCheck => deploy::check(&Cluster::running()?),
        Verb::Node(options) => node::run(options),
    }
}

/// Turns this process into `command`, so that its input, signals and exit code are the caller's.
fn become_command(mut command: Command) -> Result<()> {
    Err(command.stdin(Stdio::inherit()).exec().into())
}
