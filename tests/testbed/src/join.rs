//! Nodes that join, leave and restart while the cluster runs.

use crate::layout::Layout;
use crate::sh;
use crate::state::{Cluster, Node};
use crate::{control_plane, down, lan, node, pki, wait};
use anyhow::{Context, Result, bail};
use std::fs;
use std::time::Duration;

/// Longest time until the runtime of a node has started.
const LIMIT: Duration = Duration::from_mins(2);

/// Adds a node without plugins and without a network configuration.
pub fn add(cluster: &Cluster, node: Node) -> Result<()> {
    let others = cluster.nodes()?;
    if others.contains(&node) {
        bail!("{node} is in the cluster already");
    }
    let layout = Layout::of(cluster)?;
    pki::add(cluster, node)?;
    node::make_dirs(cluster, node)?;
    lan::join(node, &others, layout)?;
    control_plane::register(cluster, &[node], layout)?;
    start(cluster, node)
}

/// Kills a node and deletes its Node object and its files.
pub fn remove(cluster: &Cluster, node: Node) -> Result<()> {
    down::kill(node)?;
    lan::leave(node)?;
    sh::read(&mut cluster.kubectl(["delete", "node", &node.to_string()]))?;
    let dir = cluster.node_dir(node);
    fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))
}

/// Restarts a node as after a power cut: its processes, network namespaces and /run are gone, its
/// disk stays.
pub fn reboot(cluster: &Cluster, node: Node) -> Result<()> {
    down::kill(node)?;
    lan::leave(node)?;
    let mut others = cluster.nodes()?;
    others.retain(|other| *other != node);
    lan::join(node, &others, Layout::of(cluster)?)?;
    start(cluster, node)
}

fn start(cluster: &Cluster, node: Node) -> Result<()> {
    let pid = cluster.node_dir(node).join("pid");
    // A file of an earlier boot names a process that ended.
    match fs::remove_file(&pid) {
        Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
            return Err(err).with_context(|| format!("remove {}", pid.display()));
        }
        _ => {}
    }
    node::spawn(cluster, node)?;
    // The Node object exists before the kubelet.
    wait::until("containerd answers", LIMIT, || {
        let asked = cluster.on(node, ["ctr", "version"]);
        asked.map_or(Ok(false), |mut ctr| wait::succeeds(&mut ctr))
    })
}
