//! Installation of braid on the nodes with deploy/braid.yaml, and its removal. Both follow the
//! steps of an administrator.

use crate::state::{Cluster, Node};
use crate::{Arch, sh};
use crate::{up, wait};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Manifest of braid.
pub const MANIFEST: &str = "deploy/braid.yaml";
/// Selects all objects of the manifest but the definitions of kinds.
const ALL_BUT_KINDS: &str = "app.kubernetes.io/component!=crd";
const REMOVAL: &str = "--patch-file=deploy/remove.yaml";
/// Plugin folder of the nodes, into which the manifest installs braid.
const PLUGINS: &str = "/opt/cni/bin";
/// Folder of the nodes into which the agent writes a conflist and a kubeconfig.
const CONFIGURATIONS: &str = "/etc/cni/net.d";
/// Protocol number of the agent's routes.
const ROUTES: &str = "98";
/// Words of the agent's rules.
const RULES: &str = "lookup 98";
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

/// Installs braid: imports the images and applies the manifest.
pub fn bring(cluster: &Cluster) -> Result<()> {
    prepare(cluster)?;
    let nodes = cluster.nodes()?;
    let start = Instant::now();
    sh::read(&mut cluster.kubectl(["apply", "-f", MANIFEST]))?;
    wait::nodes(cluster)?;
    roll_out(cluster)?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "braid is on {} nodes, all Ready, {seconds:.1} s after `kubectl apply`",
        nodes.len()
    );
    Ok(())
}

/// Saves a listing of each plugin folder that lacks braid, and imports the images.
pub fn prepare(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes()? {
        let before = folder(cluster, node)?;
        if !before.lines().any(is_braid) {
            let note = note(cluster, node);
            fs::write(&note, before).with_context(|| format!("write {}", note.display()))?;
        }
    }
    bring_image(cluster)
}

/// Imports braid's image into the nodes again, for one that joined.
pub fn load(cluster: &Cluster) -> Result<()> {
    up::load(cluster, &archive(cluster))
}

/// Replaces braid's pods and waits for the new ones.
pub fn restart(cluster: &Cluster) -> Result<()> {
    sh::read(&mut cluster.kubectl(["rollout", "restart", DAEMON_SET, "-n", "kube-system"]))?;
    roll_out(cluster)
}

/// Removes braid as deploy/README.md describes. Fails unless the plugin folders match the listings
/// from before the installation.
pub fn take_off(cluster: &Cluster) -> Result<()> {
    take_off_by(cluster, REMOVAL, || {
        let mut delete = cluster.kubectl([
            "delete",
            "-f",
            MANIFEST,
            "-l",
            ALL_BUT_KINDS,
            "--cascade=foreground",
            &wait::timeout(LIMIT),
        ]);
        sh::read(&mut delete).map(drop)
    })
}

/// Removes braid with a patch of the `DaemonSet`, an option of `kubectl patch`, and then its objects
/// with `delete`. Fails like [`take_off`].
pub fn take_off_by(
    cluster: &Cluster,
    patch: &str,
    delete: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    sh::read(&mut cluster.kubectl(["patch", DAEMON_SET, "-n", "kube-system", patch]))?;
    roll_out(cluster)?;
    delete()?;
    for node in cluster.nodes()? {
        ensure_restored(cluster, node)?;
        ensure_unused(cluster, node)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "braid is removed after {seconds:.1} s, with its configurations, and the plugin folders are as before"
    );
    Ok(())
}

/// Fails unless the node's plugin folder is as before the installation, and no configuration of braid
/// is left.
pub fn ensure_restored(cluster: &Cluster, node: Node) -> Result<()> {
    let note = note(cluster, node);
    let before = fs::read_to_string(&note).with_context(|| format!("read {}", note.display()))?;
    let after = folder(cluster, node)?;
    ensure!(
        after == before,
        "{node}: {PLUGINS} was\n{before}\nand is\n{after}"
    );
    let left = sh::read(&mut cluster.on(node, ["find", CONFIGURATIONS, "-name", "*braid*"])?)?;
    ensure!(left.is_empty(), "{node}: left in {CONFIGURATIONS}:\n{left}");
    Ok(())
}

/// Fails if the node has a file, link, route, rule, table or pin of the agent.
pub fn ensure_unused(cluster: &Cluster, node: Node) -> Result<()> {
    let files = ["find", "/run/braid", "/sys/fs/bpf", "!", "-type", "d"];
    for list in [
        &files[..],
        &["ip", "-o", "link"],
        &["ip", "route", "show", "table", "all", "proto", ROUTES],
        &["ip", "-6", "route", "show", "table", "all", "proto", ROUTES],
        &["ip", "rule"],
        &["ip", "-6", "rule"],
        &["nft", "list", "tables"],
    ] {
        // Without a pod, /run/braid may be missing.
        let listed = sh::read(&mut cluster.on(node, list)?).unwrap_or_default();
        let is_left =
            |line: &&str| line.contains("braid") || list.contains(&ROUTES) || line.contains(RULES);
        let left: Vec<&str> = listed.lines().filter(is_left).collect();
        ensure!(left.is_empty(), "{node}: left of {list:?}: {left:?}");
    }
    Ok(())
}

/// True if a line of `ip` or `bridge` names an address of the node or a range of its pods.
pub fn is_about(line: &str, node: Node) -> bool {
    let ranges = [node.pod_cidr(), node.pod_cidr6()];
    let addresses = [node.address().to_string(), node.address6().to_string()];
    let mut words = line.split(' ');
    words.any(|word| ranges.iter().chain(&addresses).any(|own| own == word))
}

/// Imports braid's image into the nodes, as an administrator without a registry does.
fn bring_image(cluster: &Cluster) -> Result<()> {
    let archive = archive(cluster);
    let arch = Arch::native()?.to_string();
    let mut image = sh::cmd("cargo", ["xtask", "image", "--unordered", "--arch", &arch]);
    image.arg("--output").arg(&archive).stdout(Stdio::null());
    sh::run(&mut image)?;
    up::load(cluster, &archive)
}

/// Path of the archive with braid's image.
fn archive(cluster: &Cluster) -> PathBuf {
    cluster.dir().join("braid.tar")
}

/// Waits until the current pods of the `DaemonSet` run on all nodes.
pub fn roll_out(cluster: &Cluster) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_about_a_node_by_a_whole_word() {
        let node: Node = "n1".parse().expect("a node");
        for (line, expected) in [
            ("10.244.1.0/24 via 10.99.0.11 dev eth0 proto 98", true),
            ("ae:5e:00:00:00:01 dst 10.99.0.11 self permanent", true),
            ("fd00:244:0:1::/64 dev braid-vxlan", true),
            ("10.244.1.5 dev veth0 scope link", false),
            ("10.244.12.0/24 via 10.99.0.12 dev eth0", false),
        ] {
            assert_eq!(is_about(line, node), expected, "{line}");
        }
    }
}
