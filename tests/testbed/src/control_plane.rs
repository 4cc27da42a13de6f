//! etcd, API server, controller manager and scheduler, in a dedicated network namespace.

use crate::audit;
use crate::layout::Layout;
use crate::state::{API_SERVER, CONTROL_PLANE, Cluster, Node, bin, in_netns};
use crate::{node, wait};
use anyhow::Result;
use serde_json::json;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

/// Log names of the control plane's processes.
pub(crate) const LOGS: [&str; 4] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

/// Starts the four processes of the control plane. Waits until the API server is ready and the
/// default service account exists.
pub(crate) fn start(cluster: &Cluster, layout: Layout) -> Result<()> {
    let mut etcd = in_netns(CONTROL_PLANE, "etcd");
    // The data need not survive a power cut, and fsync would be most of the API server's time.
    etcd.arg("--data-dir")
        .arg(cluster.dir().join("etcd"))
        .arg("--unsafe-no-fsync");
    let mut scheduler = in_netns(CONTROL_PLANE, bin().join("kube-scheduler"));
    scheduler
        .arg(flag("kubeconfig", cluster, "admin.conf"))
        .arg("--leader-elect=false");
    let [api, controllers] = [
        [etcd, api_server(cluster, layout)?],
        [controller_manager(cluster), scheduler],
    ];
    let mut daemons: Vec<(&str, Child)> = Vec::new();
    // The controller manager exits if the API server needs more than ten seconds to start.
    for (names, commands, what, question) in [
        (
            &LOGS[..2],
            api,
            "the API server is ready",
            &["get", "--raw", "/readyz"][..],
        ),
        (
            &LOGS[2..],
            controllers,
            "pods have a service account",
            &["get", "serviceaccount", "default"],
        ),
    ] {
        for (name, mut command) in names.iter().zip(commands) {
            daemons.push((name, wait::daemon(cluster, name, &mut command)?));
        }
        wait::until(what, Duration::from_mins(1), || {
            wait::alive(&mut daemons)?;
            wait::succeeds(&mut cluster.kubectl(question))
        })?;
    }
    Ok(())
}

/// Sends a signal to the API server, for example `STOP`.
pub fn signal_api_server(signal: &str) -> Result<()> {
    node::signal(CONTROL_PLANE, "kube-apiserver", signal)
}

/// Creates the Node objects before the kubelets start, so that each node gets its fixed pod address
/// range.
pub(crate) fn register(cluster: &Cluster, nodes: &[Node], layout: Layout) -> Result<()> {
    let mut items = Vec::new();
    for node in nodes {
        let mut ranges = vec![node.pod_cidr()];
        ranges.extend(layout.has_ipv6.then(|| node.pod_cidr6()));
        items.push(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.to_string(), "labels": {"kubernetes.io/hostname": node.to_string()}},
            "spec": {"podCIDR": ranges[0], "podCIDRs": ranges},
        }));
    }
    cluster.create(&items)
}

fn api_server(cluster: &Cluster, layout: Layout) -> Result<Command> {
    let mut command = in_netns(CONTROL_PLANE, bin().join("kube-apiserver"));
    command
        .args(api_server_flags(
            |file| cluster.pki(file),
            API_SERVER,
            services(layout.has_ipv6),
        ))
        .args(audit::flags(&cluster.log(""), &[audit::USER])?)
        .arg("--kubelet-preferred-address-types=InternalIP")
        .arg(flag("kubelet-client-certificate", cluster, "admin.crt"))
        .arg(flag("kubelet-client-key", cluster, "admin.key"));
    Ok(command)
}

/// Returns the ranges of Services.
pub(crate) fn services(has_ipv6: bool) -> &'static str {
    if has_ipv6 {
        "10.96.0.0/16,fd96::/112"
    } else {
        "10.96.0.0/16"
    }
}

/// Returns the flags of an API server at `address`. Its etcd runs on the same host. `pki` returns
/// the path of a certificate or key in [`Pki`](crate::pki::Pki). `services` are the ranges of
/// Services.
pub(crate) fn api_server_flags(
    pki: impl Fn(&str) -> PathBuf,
    address: Ipv4Addr,
    services: &str,
) -> Vec<String> {
    let files = [
        ("client-ca-file", "ca.crt"),
        ("tls-cert-file", "apiserver.crt"),
        ("tls-private-key-file", "apiserver.key"),
        ("service-account-key-file", "sa.pub"),
        ("service-account-signing-key-file", "sa.key"),
    ];
    let plain = [
        "--etcd-servers=http://127.0.0.1:2379",
        "--secure-port=6443",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes",
    ];
    let mut flags = plain.map(String::from).to_vec();
    flags.push(format!("--advertise-address={address}"));
    flags.push(format!("--service-cluster-ip-range={services}"));
    for (name, file) in files {
        flags.push(format!("--{name}={}", pki(file).display()));
    }
    flags
}

fn controller_manager(cluster: &Cluster) -> Command {
    let mut command = in_netns(CONTROL_PLANE, bin().join("kube-controller-manager"));
    command
        .arg(flag("kubeconfig", cluster, "admin.conf"))
        .arg(flag("service-account-private-key-file", cluster, "sa.key"))
        .arg(flag("root-ca-file", cluster, "ca.crt"))
        // By default the controller manager creates a folder under /usr/libexec.
        .arg(format!(
            "--flex-volume-plugin-dir={}",
            cluster.dir().join("volume-plugins").display()
        ))
        .arg("--leader-elect=false");
    command
}

fn flag(name: &str, cluster: &Cluster, file: &str) -> String {
    format!("--{name}={}", cluster.pki(file).display())
}
