//! `cargo xtask cluster`: runs a real Kubernetes on this machine (`tests/testbed/`).

pub(crate) mod own;

use anyhow::Result;
use braid_testbed::{Cluster, Node, binaries, deploy, down, join, node, sh, up};
use clap::Subcommand;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Commands of tests/cluster, which have their own help.
const CHECKS: &str = "Checks of a running cluster (`<check> --help` lists options):
  burst           Create many pods at the same time: time until all are Ready, and the runtime's metrics of the plugin
  smoke           Check the basics of a CNI plugin: pods Ready, reachable, exec, logs, and no leftovers
  status-check    Check that a node is not Ready while its address store is read-only, with the plugin's reason
  limit-check     Fail unless bandwidth annotations limit a pod
  hostport-check  Fail unless host ports and Services work; needs `up --kube-proxy`
  agent-check     Fail unless deploy/braid.yaml makes a cluster of machines without any network for pods; nodes join, restart
                  and leave; needs `up --kube-proxy` without plugins
  chaos-check     Fail unless traffic and new pods survive disturbances of the agent, the API server, the runtime and a node;
                  needs `deploy`
  hotplug-check   Fail unless the networks of running pods follow their annotations, also if agents are killed meanwhile; needs
                  `deploy`
  repair-check    Fail unless the agents restore what other programs delete, and collect garbage; needs `up --kube-proxy` and
                  `deploy`
  churn-check     Fail unless pods that come and go leave nothing, and cost the agents no memory; needs `deploy`
  settings-check  Fail unless type, MTU and mode of the agent's configuration apply to a running cluster; needs `deploy`
  upgrade-check   Fail unless deploy/braid.yaml replaces an installation without an agent and no packet is lost
  deploy-check    Fail unless deploy/braid.yaml installs braid on nodes without it, and its removal restores them
  chart-check     Fail unless `helm install` makes a cluster of machines without any network for pods, and its notes remove all
                  of it but the kinds; needs `up --kube-proxy` without plugins
  flannel-check   Fail unless nodes move from flanneld to mode `flannel` and back by docs/flannel.md, without an interrupted
                  connection: vxlan, host-gw; needs `up --kube-proxy --dual-stack --cni-dir` of the reference plugins, three
                  nodes
  migration-check Fail unless nodes move to braid and back by docs/migration.md: reference, multus (both need `up --conflist
                  --cni-dir` of the reference plugins), k3s (needs `up` like flannel-check, two nodes)
  multus-check    Fail unless Multus' end-to-end scripts pass with another type in its configuration; needs `deploy`
  networks-check  Fail unless pods get the networks of their annotations, of all types, without leftovers after kubelet and
                  containerd are killed; needs `up --kube-proxy` and `deploy`
  ipam-check      Fail unless pods of both nodes share the range of a network with the IPAM `whereabouts`; needs `deploy`
  claims-check    Fail unless pods with resource claims are placed where a link has the claimed bandwidth left, and have that
                  rate; needs `deploy`
  view-check      Fail unless `kubectl braid` shows attachments, rates and faults of the nodes as they are; needs `deploy`";

#[derive(clap::Args)]
#[command(after_help = CHECKS)]
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
    /// Kill all of the cluster's processes and remove its namespaces, mounts and files
    Down,
    /// Add a node without plugins and configuration; n1-n5 are on one link, n6-n9 behind a router
    Add { node: Node },
    /// Kill a node, and delete its Node object and its files
    Remove { node: Node },
    /// Restart a node as after a power cut: /run is empty, the disk stays
    Reboot { node: Node },
    /// Run kubectl as the cluster's administrator
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
    /// Install this checkout's braid on the nodes with deploy/braid.yaml
    Deploy(deploy::Options),
    /// Start a node inside its namespaces
    #[command(hide = true)]
    Node(node::Options),
    #[command(external_subcommand)]
    Check(Vec<OsString>),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.verb {
        Verb::Build => binaries::build(),
        Verb::Up(options) => up::run(options),
        Verb::Down => down::run(),
        Verb::Add { node } => join::add(&Cluster::running()?, *node),
        Verb::Remove { node } => join::remove(&Cluster::running()?, *node),
        Verb::Reboot { node } => join::reboot(&Cluster::running()?, *node),
        Verb::Kubectl { args } => become_command(Cluster::running()?.kubectl(args)),
        Verb::Exec { node, command } => become_command(Cluster::running()?.on(*node, command)?),
        Verb::Load { archive } => up::load(&Cluster::running()?, archive),
        Verb::Deploy(options) => deploy::run(&Cluster::running()?, options),
        Verb::Node(options) => node::run(options),
        Verb::Check(args) => {
            let checks = ["run", "--quiet", "--package", "braid-cluster-checks", "--"];
            let mut checks = sh::cmd("cargo", checks);
            checks.args(args);
            become_command(checks)
        }
    }
}

/// Replaces this process with `command`, so that the command has this process's standard input,
/// signals and exit code.
fn become_command(mut command: Command) -> Result<()> {
    Err(command.stdin(Stdio::inherit()).exec().into())
}
