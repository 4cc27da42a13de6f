//! `braid agent`: the agent of a node.

use super::{Outcome, SUCCESS, output};
use braid_agent::credentials::Paths;
use braid_agent::{Account, Options, run as run_agent};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Keep the default network of this node and its routes to other nodes right, until SIGTERM
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// File with address and credentials of the API server; without it, those of the pod
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of this node's Node object
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,
    /// Conflist to write
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/cni/net.d/00-braid.conflist"
    )]
    conflist: PathBuf,
    /// Kubeconfig that the conflist names, as a path on the node
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/cni/net.d/braid.d/kubeconfig"
    )]
    call_kubeconfig: PathBuf,
    /// Folder of the token and the certificate that this kubeconfig names
    #[arg(long, value_name = "FOLDER", default_value = "/run/braid/api")]
    call_credentials: PathBuf,
    /// Service account of the agent; plugin calls use its tokens
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "kube-system/braid", value_parser = account)]
    service_account: Account,
    /// Address and port of /healthz and /readyz
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4627")]
    health_address: SocketAddr,
    /// Delete what the agent made on this node, then wait for SIGTERM
    #[arg(long)]
    remove: bool,
}

fn account(text: &str) -> Result<Account, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Account {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
        _ => Err("not <namespace>/<name>".to_owned()),
    }
}

pub(super) fn run(arguments: Arguments) -> Outcome {
    output::log_to_stderr();
    run_agent(&Options {
        kubeconfig: arguments.kubeconfig,
        node_name: arguments.node_name,
        conflist: arguments.conflist,
        credentials: Paths {
            folder: arguments.call_credentials,
            kubeconfig: arguments.call_kubeconfig,
        },
        account: arguments.service_account,
        health_address: arguments.health_address,
        is_removal: arguments.remove,
    })?;
    Ok(SUCCESS)
}
