//! Start of the cluster.

use crate::layout::Layout;
use crate::sh;
use crate::state::{Cluster, Node};
use crate::{binaries, cni, control_plane, image, lan, node, pki, wait};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time until the nodes are Ready.
const LIMIT: Duration = Duration::from_mins(2);

/// Options of `cargo xtask cluster up`.
#[derive(clap::Args)]
pub struct Options {
    /// Number of nodes on the link of the control plane
    #[arg(long, default_value_t = 2)]
    nodes: u8,
    /// Number of nodes on another link, behind a router
    #[arg(long, default_value_t = 0)]
    far_nodes: u8,
    /// Give nodes and pods also IPv6 addresses
    #[arg(long)]
    dual_stack: bool,
    /// MTU of the links between nodes
    #[arg(long, default_value_t = 1500)]
    mtu: u16,
    #[command(flatten)]
    cni: cni::Plugin,
    /// Run kube-proxy (nftables mode) on each node
    #[arg(long)]
    kube_proxy: bool,
}

/// Starts a control plane and its nodes, and leaves them running.
pub fn run(options: &Options) -> Result<()> {
    let nodes = Node::first(options.nodes, options.far_nodes)?;
    binaries::build()?;
    if options.kube_proxy {
        load_br_netfilter()?;
    }
    let start = Instant::now();
    let cluster = Cluster::place();
    if cluster.dir().exists() {
        bail!(
            "{} exists: run `cargo xtask cluster down` first",
            cluster.dir().display()
        );
    }
    let layout = Layout {
        has_ipv6: options.dual_stack,
        mtu: options.mtu,
        // Without a configuration, the nodes are machines without any network for pods.
        has_routes: options.cni.is_complete(),
        has_kube_proxy: options.kube_proxy,
    };
    prepare(&cluster, &nodes, &options.cni, layout)?;
    control_plane::start(&cluster, layout).inspect_err(|_| {
        wait::print_logs(&cluster, &control_plane::LOGS.map(String::from));
    })?;
    eprintln!(
        "control plane ready after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    start_nodes(&cluster, &nodes, options, layout).inspect_err(|_| {
        let mut logs = Vec::new();
        for node in &nodes {
            for part in ["node", "containerd", "kubelet"] {
                logs.push(format!("{part}-{node}"));
            }
        }
        wait::print_logs(&cluster, &logs);
    })?;
    eprintln!(
        "{} nodes after {:.1} s",
        nodes.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Loads `br_netfilter`. Without this module, kube-proxy's NAT does not see a reply between two
/// pods on the same bridge.
fn load_br_netfilter() -> Result<()> {
    if Path::new("/proc/sys/net/bridge").is_dir() {
        return Ok(());
    }
    sh::run(&mut sh::cmd("modprobe", ["br_netfilter"])).context("kube-proxy needs br_netfilter")
}

/// Imports an OCI archive into the containerd of each node.
pub fn load(cluster: &Cluster, archive: &Path) -> Result<()> {
    let archive =
        fs::canonicalize(archive).with_context(|| format!("find {}", archive.display()))?;
    for node in cluster.nodes()? {
        sh::read(
            cluster
                .on(node, ["ctr", "-n", "k8s.io", "images", "import"])?
                .arg(&archive),
        )?;
    }
    Ok(())
}

fn prepare(cluster: &Cluster, nodes: &[Node], cni: &cni::Plugin, layout: Layout) -> Result<()> {
    fs::create_dir_all(cluster.log(""))?;
    layout.save(cluster)?;
    node::make_mount_points(cluster)?;
    pki::create(cluster, nodes).context("make certificates")?;
    lan::create(nodes, layout).context("make the network between the nodes")?;
    image::write(
        &cluster.dir().join("pause.tar"),
        "localhost/pause:1",
        &["/bin/sleep", "1000000"],
    )?;
    image::write(
        &cluster.dir().join("busybox.tar"),
        "localhost/busybox:1",
        &["/bin/sh"],
    )?;
    for node in nodes {
        node::make_dirs(cluster, *node)?;
        cni.install(cluster, *node)?;
    }
    Ok(())
}

fn start_nodes(cluster: &Cluster, nodes: &[Node], options: &Options, layout: Layout) -> Result<()> {
    control_plane::register(cluster, nodes, layout)?;
    for node in nodes {
        node::spawn(cluster, *node)?;
    }
    let condition = if options.cni.is_complete() {
        "--for=condition=Ready"
    } else {
        eprintln!(
            "no network for the nodes: they stay NotReady until they have a plugin and a conflist"
        );
        "--for=jsonpath={.status.nodeInfo.kubeletVersion}"
    };
    let names = nodes.iter().map(|node| format!("node/{node}"));
    sh::run(
        cluster
            .kubectl(["wait", condition, &wait::timeout(LIMIT)])
            .args(names)
            .stdout(std::process::Stdio::null()),
    )
}
