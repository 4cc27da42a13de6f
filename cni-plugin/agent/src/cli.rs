//! The command line of the agent.

use braid_agent::cluster::config::Overrides;
use braid_agent::{Account, Error, ObjectName, Options, Paths, Source};
use clap::Parser;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Keep the default network of this node and its routes to other nodes right, until SIGTERM
#[derive(Debug, Parser)]
#[command(name = "braid agent", bin_name = "braid agent", version)]
pub(super) struct Arguments {
    /// File with address and credentials of the API server; without it, the files of the pod
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of this node's Node object
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,
    /// File with the configuration, instead of the `ConfigMap`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// `ConfigMap` with the configuration, in its key config.yaml
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "kube-system/braid", value_parser = object_name)]
    config_map: ObjectName,
    /// Value of `mode`, instead of the one in the configuration
    #[arg(long, env = "BRAID_MODE", value_name = "MODE")]
    mode: Option<String>,
    /// Value of `mtu`, instead of the one in the configuration
    #[arg(long, env = "BRAID_MTU", value_name = "BYTES")]
    mtu: Option<String>,
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
    /// Folder of the kubelet, for calls and for resource claims; by default /var/lib/kubelet
    #[arg(long, value_name = "FOLDER")]
    kubelet_root_dir: Option<PathBuf>,
    /// Service account of the agent; plugin calls use its tokens
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "kube-system/braid", value_parser = account)]
    service_account: Account,
    /// Address and port of /healthz and /readyz
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4627")]
    health_address: SocketAddr,
    /// Address and port of /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4628", value_parser = socket_address)]
    metrics_address: SocketAddr,
    /// Delete everything of the agent on this node, then wait for SIGTERM
    #[arg(long)]
    remove: bool,
}

fn object_name(text: &str) -> Result<ObjectName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(ObjectName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
        _ => Err("not <namespace>/<name>".to_owned()),
    }
}

fn account(text: &str) -> Result<Account, String> {
    let ObjectName { namespace, name } = object_name(text)?;
    Ok(Account { namespace, name })
}

/// Parses an address with a port. An IPv6 address may lack its brackets, as in `$(HOST_IP):4628`.
fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let parsed = text.rsplit_once(':').and_then(|(ip, port)| {
        let ip: IpAddr = ip.trim_matches(['[', ']']).parse().ok()?;
        Some(SocketAddr::new(ip, port.parse().ok()?))
    });
    parsed.ok_or_else(|| "not <address>:<port>".to_owned())
}

/// Runs the agent until SIGTERM.
pub(super) fn run(arguments: Arguments) -> Result<(), Error> {
    braid_agent::run(&Options {
        kubeconfig: arguments.kubeconfig,
        node_name: arguments.node_name,
        config: match arguments.config {
            Some(path) => Source::File(path),
            None => Source::ConfigMap(arguments.config_map),
        },
        overrides: Overrides {
            mode: arguments.mode.filter(|mode| !mode.is_empty()),
            mtu: arguments.mtu.filter(|mtu| !mtu.is_empty()),
        },
        conflist: arguments.conflist,
        credentials: Paths {
            folder: arguments.call_credentials,
            kubeconfig: arguments.call_kubeconfig,
        },
        kubelet_root_dir: arguments.kubelet_root_dir,
        account: arguments.service_account,
        health_address: arguments.health_address,
        metrics_address: arguments.metrics_address,
        is_removal: arguments.remove,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_node_has_brackets_or_not() {
        let parsed = |text| socket_address(text).map(|address| address.to_string());
        assert_eq!(parsed("192.0.2.1:4628"), Ok("192.0.2.1:4628".to_owned()));
        for text in ["[2001:db8::1]:4628", "2001:db8::1:4628"] {
            assert_eq!(parsed(text), Ok("[2001:db8::1]:4628".to_owned()));
        }
        for text in ["4628", ":4628", "node:4628", "192.0.2.1", "192.0.2.1:x", ""] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
