//! A node: a network namespace and a mount namespace with the default paths of containerd and
//! kubelet.

use crate::layout::Layout;
use crate::sh;
use crate::state::{Cluster, Node, bin, in_netns};
use crate::{node_config, wait};
use anyhow::{Context, Result};
use std::fmt::{Display, Formatter};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Plugin folder, relative to the node's folder. It has the same path as on a real node, because
/// mountinfo shows this path.
pub(crate) const PLUGINS: &str = "opt/cni/bin";
/// Bind mounts of a node: a folder in the node's folder, and its mount point. `/run` is a new
/// tmpfs.
const MOUNTS: &[(&str, &str)] = &[
    (PLUGINS, "/opt/cni/bin"),
    ("net.d", "/etc/cni/net.d"),
    ("cni-state", "/var/lib/cni"),
    ("braid-state", "/var/lib/braid"),
    ("kubelet", "/var/lib/kubelet"),
    ("containerd", "/var/lib/containerd"),
    ("log", "/var/log"),
];
/// Time between the end of a service and its restart.
const RESTART: Duration = Duration::from_secs(1);

/// A service that runs on a node. The node restarts a service that ends.
#[derive(Clone, Copy)]
pub enum Service {
    /// The container runtime.
    Containerd,
    /// The kubelet.
    Kubelet,
}

impl Display for Service {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
        })
    }
}

impl Service {
    /// Kills the service with SIGKILL, like a crash.
    pub fn kill(self, node: Node) -> Result<()> {
        self.signal(node, "KILL")
    }

    /// Sends a signal to the service, for example `STOP`.
    pub fn signal(self, node: Node, signal: &str) -> Result<()> {
        self::signal(&node.netns(), &self.to_string(), signal)
    }
}

/// Sends a signal to the process of a program of the cluster in a network namespace.
pub(crate) fn signal(netns: &str, name: &str, signal: &str) -> Result<()> {
    let pids = sh::read(&mut sh::cmd("ip", ["netns", "pids", netns]))?;
    let program = bin().join(name);
    let is_it =
        |pid: &&str| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    let pid = pids
        .lines()
        .find(is_it)
        .with_context(|| format!("{name} does not run in {netns}"))?;
    sh::run(&mut sh::cmd("kill", [&format!("-{signal}"), pid]))
}

/// Options of `cargo xtask cluster node`.
#[derive(clap::Args)]
pub struct Options {
    node: Node,
}

/// Creates the folders of a node.
pub(crate) fn make_dirs(cluster: &Cluster, node: Node) -> Result<()> {
    for (dir, _) in MOUNTS {
        let dir = cluster.node_dir(node).join(dir);
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    }
    Ok(())
}

/// Creates the mount points that this machine lacks, and saves their list so that `down` removes
/// them.
pub(crate) fn make_mount_points(cluster: &Cluster) -> Result<()> {
    let mut missing = Vec::new();
    for (_, target) in MOUNTS {
        for path in Path::new(target).ancestors() {
            if !path.exists() {
                missing.push(path.display().to_string());
            }
        }
    }
    fs::write(cluster.dir().join("mount-points"), missing.join("\n"))?;
    for (_, target) in MOUNTS {
        fs::create_dir_all(target).with_context(|| format!("create {target}"))?;
    }
    Ok(())
}

/// Moves the folder `usual` of a node to the path `target`, as on another distribution. The folder is
/// mounted at both paths, because containerd uses the usual one. containerd must restart afterwards.
pub fn relocate(cluster: &Cluster, node: Node, usual: &str, target: &str) -> Result<()> {
    let list = cluster.dir().join("mount-points");
    let mut missing = Vec::new();
    for path in Path::new(target).ancestors() {
        if !path.exists() {
            missing.push(path.display().to_string());
        }
    }
    // `down` removes them in the order of the list, a folder before those around it.
    missing.push(fs::read_to_string(&list).unwrap_or_default());
    fs::write(&list, missing.join("\n")).with_context(|| format!("write {}", list.display()))?;
    fs::create_dir_all(target).with_context(|| format!("create {target}"))?;
    // The end of the folder's path is that on the node, because mountinfo shows it.
    let folder = cluster.node_dir(node).join(target.trim_start_matches('/'));
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let files = format!("{usual}/.");
    sh::read(cluster.on(node, ["cp", "--archive", &files])?.arg(&folder))?;
    for path in [target, usual] {
        let mut mount = cluster.on(node, ["mount", "--bind"])?;
        sh::read(mount.arg(&folder).arg(path))?;
    }
    Ok(())
}

/// Starts a node in the background, as `cargo xtask cluster node` in new namespaces.
pub(crate) fn spawn(cluster: &Cluster, node: Node) -> Result<()> {
    let mut command = in_netns(&node.netns(), "unshare");
    command
        .args(["--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe()?);
    command.args(["cluster", "node", &node.to_string()]);
    wait::daemon(cluster, &format!("node-{node}"), &mut command)?;
    Ok(())
}

/// Runs a node inside its namespaces: mounts the folders, starts containerd, imports images and
/// starts the kubelet. Restarts the services until the process is killed.
pub fn run(options: &Options) -> Result<()> {
    let (cluster, node) = (Cluster::running()?, options.node);
    let layout = Layout::of(&cluster)?;
    mount(&cluster, node)?;
    node_config::write(&cluster, node)?;
    fs::write(
        cluster.node_dir(node).join("pid"),
        std::process::id().to_string(),
    )?;
    thread::scope(|services| {
        services.spawn(|| {
            keep(&cluster, &format!("containerd-{node}"), || {
                containerd(&cluster, node)
            });
        });
        import_images(&cluster)?;
        if layout.has_kube_proxy {
            services.spawn(|| {
                keep(&cluster, &format!("kube-proxy-{node}"), || {
                    kube_proxy(&cluster, node, layout)
                });
            });
        }
        keep(&cluster, &format!("kubelet-{node}"), || {
            kubelet(&cluster, node, layout)
        });
        Ok(())
    })
}

fn mount(cluster: &Cluster, node: Node) -> Result<()> {
    sh::run(&mut sh::cmd("mount", ["-t", "tmpfs", "tmpfs", "/run"]))?;
    fs::create_dir_all("/run/netns")?;
    if Path::new("/sys/fs/bpf").is_dir() {
        sh::run(&mut sh::cmd("mount", ["-t", "bpf", "bpf", "/sys/fs/bpf"]))?;
    }
    for (dir, target) in MOUNTS {
        sh::run(
            sh::cmd("mount", ["--bind"])
                .arg(cluster.node_dir(node).join(dir))
                .arg(target),
        )?;
    }
    // Mount propagation of pods needs shared mounts, as a service manager makes them.
    sh::run(&mut sh::cmd("mount", ["--make-rshared", "/"]))
}

fn import_images(cluster: &Cluster) -> Result<()> {
    wait::until("containerd answers", Duration::from_mins(1), || {
        wait::succeeds(&mut program("ctr", &["version"]))
    })?;
    for image in ["pause.tar", "busybox.tar"] {
        sh::read(
            program("ctr", &["-n", "k8s.io", "images", "import"]).arg(cluster.dir().join(image)),
        )?;
    }
    Ok(())
}

/// Runs a service and restarts it whenever it ends, as a service manager does. Writes its output to
/// the log `log`.
fn keep(cluster: &Cluster, log: &str, service: impl Fn() -> Command) {
    loop {
        let ended =
            wait::daemon(cluster, log, &mut service()).and_then(|mut child| Ok(child.wait()?));
        match ended {
            Ok(status) => eprintln!("{log} ended: {status}"),
            Err(err) => eprintln!("{log}: {err:#}"),
        }
        thread::sleep(RESTART);
    }
}

fn containerd(cluster: &Cluster, node: Node) -> Command {
    let mut command = program("containerd", &["--config"]);
    command.arg(cluster.node_dir(node).join(node_config::CONTAINERD));
    command
}

fn kubelet(cluster: &Cluster, node: Node, layout: Layout) -> Command {
    let mut addresses = node.address().to_string();
    if layout.has_ipv6 {
        addresses = format!("{addresses},{}", node.address6());
    }
    let mut command = program("kubelet", &["--v=2"]);
    command
        .arg(format!(
            "--config={}",
            cluster.node_dir(node).join(node_config::KUBELET).display()
        ))
        .arg(format!(
            "--kubeconfig={}",
            cluster.pki(&format!("{node}.conf")).display()
        ))
        // Without an address the kubelet tries to resolve names for 20 s, and the API server cannot
        // reach it for exec and logs.
        .args([
            format!("--hostname-override={node}"),
            format!("--node-ip={addresses}"),
        ]);
    command
}

fn kube_proxy(cluster: &Cluster, node: Node, layout: Layout) -> Command {
    let pods = if layout.has_ipv6 {
        "10.244.0.0/16,fd00:244::/48"
    } else {
        "10.244.0.0/16"
    };
    let mut command = program(
        "kube-proxy",
        &["--proxy-mode=nftables", &format!("--cluster-cidr={pods}")],
    );
    command
        // A network namespace cannot set the limit.
        .args(["--conntrack-max-per-core=0", "--conntrack-min=0"])
        .arg(format!(
            "--kubeconfig={}",
            cluster.pki("admin.conf").display()
        ))
        .arg(format!("--hostname-override={node}"));
    command
}

/// Returns a command that runs one of the cluster's programs. The program inherits the search path
/// that `in_netns` sets, and passes it on to CNI plugins.
fn program(name: &str, args: &[&str]) -> Command {
    let mut command = sh::cmd(bin().join(name), args);
    command.current_dir("/");
    command
}
