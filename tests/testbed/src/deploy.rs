//! Installation of braid on the nodes with deploy/braid.yaml, and its removal. Both follow the
//! steps of an administrator.

use crate::sh;
use crate::state::{Cluster, Node};
use crate::{up, wait};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

const MANIFEST: &str = "deploy/braid.yaml";
/// Start of the name of braid's image in the manifest; the version follows.
const IMAGE: &str = "localhost/braid:";
/// Patch of the manifest for nodes on which braid also attaches pods to the networks of their
/// annotations. The patched pods need the objects in `OBJECTS`.
const NETWORKS: &str = "deploy/networks.yaml";
const OBJECTS: [&str; 2] = ["deploy/crds.yaml", "deploy/rbac.yaml"];
const REMOVAL: &str = "deploy/remove.yaml";
/// Plugin folder of the nodes, into which the manifest installs braid.
const PLUGINS: &str = "/opt/cni/bin";
/// Folder of the nodes into which the patch [`NETWORKS`] installs a conflist and a kubeconfig.
const CONFIGURATIONS: &str = "/etc/cni/net.d";
const DAEMON_SET: &str = "daemonset/braid";
/// Longest time of one step of the installation or removal. A rollout may take twice as long.
const LIMIT: Duration = Duration::from_mins(1);

/// Options of `cargo xtask cluster deploy`.
#[derive(clap::Args)]
pub struct Options {
    /// Remove braid, and fail unless the nodes' plugin folders are as before
    #[arg(long)]
    remove: bool,
}

/// Installs braid on the nodes, or removes it.
pub fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    if options.remove {
        take_off(cluster)
    } else {
        bring(cluster)
    }
}

/// Returns true if braid is in the node's plugin folder.
pub fn has_braid(cluster: &Cluster, node: Node) -> Result<bool> {
    Ok(folder(cluster, node)?.lines().any(is_braid))
}

/// Installs braid: saves a listing of each plugin folder that lacks braid, imports the images and
/// applies the manifest.
pub fn bring(cluster: &Cluster) -> Result<()> {
    let nodes = cluster.nodes()?;
    for node in &nodes {
        let before = folder(cluster, *node)?;
        if !before.lines().any(is_braid) {
            let note = note(cluster, *node);
            fs::write(&note, before).with_context(|| format!("write {}", note.display()))?;
        }
    }
    bring_images(cluster, &nodes)?;
    let start = Instant::now();
    sh::read(&mut cluster.kubectl(["apply", "-f", MANIFEST]))?;
    roll_out(cluster)?;
    wait::nodes(cluster)?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "braid is on {} nodes, all Ready, {seconds:.1} s after `kubectl apply`",
        nodes.len()
    );
    Ok(())
}

/// Applies the patch that makes braid attach pods to the networks of their annotations, as
/// deploy/README.md describes.
pub fn attach_networks(cluster: &Cluster) -> Result<()> {
    let start = Instant::now();
    let files = OBJECTS.iter().flat_map(|file| ["-f", file]);
    sh::read(cluster.kubectl(["apply"]).args(files))?;
    sh::read(&mut cluster.kubectl([
        "wait",
        "crd",
        "--all",
        "--for=condition=Established",
        &wait::timeout(LIMIT),
    ]))?;
    let patch = [
        "patch",
        "--local",
        "-f",
        MANIFEST,
        "--patch-file",
        NETWORKS,
        "-o",
        "yaml",
    ];
    let patched = sh::read(&mut cluster.kubectl(patch))?;
    sh::feed(
        &mut cluster.kubectl(["apply", "-f", "-"]),
        patched.as_bytes(),
    )?;
    roll_out(cluster)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("the nodes attach pods to networks {seconds:.1} s after `kubectl apply`");
    Ok(())
}

/// Replaces braid's pods and waits for the new ones.
pub fn restart(cluster: &Cluster) -> Result<()> {
    sh::read(&mut cluster.kubectl(["rollout", "restart", DAEMON_SET, "-n", "kube-system"]))?;
    roll_out(cluster)
}

/// Removes braid as deploy/README.md describes. Fails unless the plugin folders match the listings
/// from before the installation.
pub fn take_off(cluster: &Cluster) -> Result<()> {
    let start = Instant::now();
    sh::read(&mut cluster.kubectl([
        "patch",
        DAEMON_SET,
        "-n",
        "kube-system",
        "--patch-file",
        REMOVAL,
    ]))?;
    roll_out(cluster)?;
    sh::read(&mut cluster.kubectl([
        "delete",
        "-f",
        MANIFEST,
        "--cascade=foreground",
        &wait::timeout(LIMIT),
    ]))?;
    for node in cluster.nodes()? {
        let note = note(cluster, node);
        let before =
            fs::read_to_string(&note).with_context(|| format!("read {}", note.display()))?;
        let after = folder(cluster, node)?;
        ensure!(
            after == before,
            "{node}: {PLUGINS} was\n{before}\nand is\n{after}"
        );
        let left = sh::read(&mut cluster.on(node, ["find", CONFIGURATIONS, "-name", "*braid*"])?)?;
        ensure!(left.is_empty(), "{node}: left in {CONFIGURATIONS}:\n{left}");
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "braid is removed after {seconds:.1} s, with its configurations, and the plugin folders are as before"
    );
    Ok(())
}

/// Imports braid's image into the nodes, as an administrator without a registry does.
fn bring_images(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    let archive = cluster.dir().join("braid.tar");
    let mut image = sh::cmd("cargo", ["xtask", "image", "--unordered", "--output"]);
    sh::run(image.arg(&archive).stdout(Stdio::null()))?;
    up::load(cluster, &archive)?;
    let manifest = fs::read_to_string(sh::root().join(MANIFEST))
        .with_context(|| format!("read {MANIFEST}"))?;
    for name in images(&manifest) {
        if name.starts_with(IMAGE) {
            continue;
        }
        for node in nodes {
            // A container that only waits can be the cluster's pause image.
            let tag = [
                "ctr",
                "-n",
                "k8s.io",
                "images",
                "tag",
                "--force",
                "localhost/pause:1",
                name,
            ];
            sh::read(&mut cluster.on(*node, tag)?)?;
        }
    }
    Ok(())
}

fn images(manifest: &str) -> Vec<&str> {
    let mut images = Vec::new();
    for line in manifest.lines() {
        images.extend(line.trim().strip_prefix("image: "));
    }
    images
}

/// Waits until the current pods of the `DaemonSet` run on all nodes.
fn roll_out(cluster: &Cluster) -> Result<()> {
    let mut status = cluster.kubectl([
        "rollout",
        "status",
        DAEMON_SET,
        "-n",
        "kube-system",
        &wait::timeout(2 * LIMIT),
    ]);
    sh::read(&mut status)?;
    Ok(())
}

/// Returns the path of the file that holds the plugin folder's listing from before the
/// installation.
fn note(cluster: &Cluster, node: Node) -> PathBuf {
    cluster.node_dir(node).join("plugins-before")
}

/// Lists the plugin folder of a node, sorted: a line of `find` for each name and a line of
/// `sha256sum` for each file.
fn folder(cluster: &Cluster, node: Node) -> Result<String> {
    let list = [
        "find",
        PLUGINS,
        "-mindepth",
        "1",
        "-printf",
        "%p %M %U:%G %T@ %l\n",
    ];
    let digests = ["-type", "f", "-exec", "sha256sum", "{}", "+"];
    let found = sh::read(cluster.on(node, list)?.args(digests))?;
    let mut lines: Vec<&str> = found.lines().collect();
    lines.sort_unstable();
    Ok(lines.join("\n"))
}

/// Returns true if the line of a plugin folder's listing names the program braid.
fn is_braid(line: &str) -> bool {
    line.strip_prefix(PLUGINS)
        .is_some_and(|name| name.starts_with("/braid "))
}
