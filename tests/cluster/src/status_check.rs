//! Check that the node is not Ready while a plugin's STATUS fails. The node's condition must give
//! the plugin's reason. After the repair, the node must become Ready.

use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use std::time::{Duration, Instant};

/// Folder in which the plugin stores leases.
const STORE: &str = "/var/lib/cni";
/// Longest time until the node's condition changes. The kubelet queries the runtime every 5 s and
/// reports a change immediately.
const LIMIT: Duration = Duration::from_secs(40);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Node with the store that becomes read-only
    #[arg(long, default_value = "n1")]
    node: Node,
}

/// Makes the plugin's store read-only, and waits until the node is `NotReady` with a reason that
/// names the store. Then makes the store writable, and waits until the node is Ready.
pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let node = options.node;
    sh::run(&mut cluster.on(node, ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", STORE])?)?;
    let start = Instant::now();
    let broken = wait_ready(cluster, node, false).and_then(|()| message(cluster, node));
    let after = start.elapsed().as_secs_f64();
    sh::run(&mut cluster.on(node, ["umount", STORE])?)?;
    let message =
        broken.context("the node stays Ready: does the plugin's STATUS check its store?")?;
    println!("{node} NotReady after {after:.1} s: {message}");
    let start = Instant::now();
    wait_ready(cluster, node, true)?;
    println!(
        "{node} Ready {:.1} s after {STORE} was repaired",
        start.elapsed().as_secs_f64()
    );
    ensure!(
        names_the_store(&message),
        "the reason does not name {STORE}, so it is not the plugin's"
    );
    Ok(())
}

/// Returns true if the message comes from the plugin. The runtime knows neither the store nor its
/// problem.
fn names_the_store(message: &str) -> bool {
    message.contains(STORE) || message.to_lowercase().contains("read-only")
}

fn wait_ready(cluster: &Cluster, node: Node, expected: bool) -> Result<()> {
    let condition = format!("--for=condition=Ready={expected}");
    sh::read(&mut cluster.kubectl([
        "wait",
        &format!("node/{node}"),
        &condition,
        &wait::timeout(LIMIT),
    ]))
    .map(drop)
}

/// Returns the message of the node's Ready condition.
fn message(cluster: &Cluster, node: Node) -> Result<String> {
    let path = r#"jsonpath={.status.conditions[?(@.type=="Ready")].message}"#;
    sh::read(&mut cluster.kubectl(["get", "node", &node.to_string(), "-o", path]))
}
