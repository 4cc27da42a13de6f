//! Names, addresses and paths of a cluster on this machine.

use crate::sh;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fmt::{Display, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// Network namespace of the control plane. The nodes have the network namespaces `braid-n1`,
/// `braid-n2`, …
pub const CONTROL_PLANE: &str = "braid-cp";
/// Network namespace that contains the bridges between the other namespaces, and is their router.
pub const LAN: &str = "braid-lan";
/// Address of the API server.
pub const API_SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// IPv6 address of the control plane, in a cluster with both families.
pub(crate) const API_SERVER6: Ipv6Addr = Ipv6Addr::new(0xFD99, 0, 0, 0, 0, 0, 0, 1);

/// A node by its number, from 1. The name of node 1 is `n1`. Nodes 1 to 5 are on the link of the
/// control plane. Nodes 6 to 9 are on another link, behind a router.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(u8);

impl Node {
    /// Largest number of a node for which the address plan of the LAN and of the pods has room.
    const MAX: u8 = 9;
    /// Largest number of a node on the link of the control plane.
    const NEAR: u8 = 5;

    /// Returns the first `near` nodes on the link of the control plane, and the first `far` nodes
    /// behind the router.
    pub(crate) fn first(near: u8, far: u8) -> Result<Vec<Self>> {
        if !(1..=Self::NEAR).contains(&near) {
            bail!("number of nodes {near} is outside 1-{}", Self::NEAR);
        }
        let most = Self::MAX - Self::NEAR;
        if far > most {
            bail!("number of nodes behind the router {far} is outside 0-{most}");
        }
        let far = Self::NEAR + 1..=Self::NEAR + far;
        Ok((1..=near).chain(far).map(Self).collect())
    }

    /// True if the node is behind the router.
    pub(crate) fn is_far(self) -> bool {
        self.0 > Self::NEAR
    }

    pub(crate) fn index(self) -> u8 {
        self.0
    }

    pub(crate) fn netns(self) -> String {
        format!("braid-{self}")
    }

    /// Address of the node on its link.
    pub fn address(self) -> Ipv4Addr {
        let link = if self.is_far() { 98 } else { 99 };
        Ipv4Addr::new(10, link, 0, 10 + self.0)
    }

    /// IPv6 address of the node on its link, in a cluster with both families.
    pub fn address6(self) -> Ipv6Addr {
        let link = if self.is_far() { 0xFD98 } else { 0xFD99 };
        Ipv6Addr::new(link, 0, 0, 0, 0, 0, 0, 0x10 + u16::from(self.0))
    }

    /// IPv4 address range of the node's pods.
    pub(crate) fn pod_cidr(self) -> String {
        format!("10.244.{}.0/24", self.0)
    }

    /// IPv6 address range of the node's pods, in a cluster with both families.
    pub(crate) fn pod_cidr6(self) -> String {
        format!("fd00:244:0:{}::/64", self.0)
    }
}

impl Display for Node {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl FromStr for Node {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(index) = text.strip_prefix('n')
            && let Ok(index) = index.parse()
            && (1..=Self::MAX).contains(&index)
        {
            return Ok(Self(index));
        }
        Err(format!("{text:?} is not a node: n1-n{}", Self::MAX))
    }
}

/// The cluster of this machine. There is at most one.
pub struct Cluster {
    dir: PathBuf,
}

impl Cluster {
    /// Returns the cluster even if it is not running. Its folder is `$BRAID_CLUSTER`, or
    /// `/tmp/braid-cluster`.
    pub(crate) fn place() -> Self {
        let dir = std::env::var_os("BRAID_CLUSTER")
            .map_or_else(|| "/tmp/braid-cluster".into(), PathBuf::from);
        Self { dir }
    }

    /// Returns the cluster, or an error if `up` has not created it.
    pub fn running() -> Result<Self> {
        let cluster = Self::place();
        if !cluster.dir.is_dir() {
            bail!(
                "no cluster at {}: run `cargo xtask cluster up` first",
                cluster.dir.display()
            );
        }
        Ok(cluster)
    }

    /// Folder of the cluster's files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Folder of the node's files. Inside the node they are mounted at the default paths.
    pub(crate) fn node_dir(&self, node: Node) -> PathBuf {
        self.dir.join(node.to_string())
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.dir.join("log").join(name)
    }

    pub(crate) fn pki(&self, file: &str) -> PathBuf {
        self.dir.join("pki").join(file)
    }

    /// Lists the nodes that `up` has created.
    pub fn nodes(&self) -> Result<Vec<Node>> {
        let entries =
            std::fs::read_dir(&self.dir).with_context(|| format!("list {}", self.dir.display()))?;
        let mut nodes = Vec::new();
        for entry in entries.flatten() {
            if let Some(name) = entry.file_name().to_str() {
                nodes.extend(name.parse::<Node>().ok());
            }
        }
        nodes.sort_unstable();
        Ok(nodes)
    }

    /// Returns a `kubectl` command that runs as administrator in the API server's network
    /// namespace.
    pub fn kubectl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = in_netns(CONTROL_PLANE, bin().join("kubectl"));
        command.arg("--kubeconfig").arg(self.pki("admin.conf"));
        command
            .arg("--cache-dir")
            .arg(self.dir.join("kubectl-cache"))
            .args(args);
        command
    }

    /// Returns a `kubectl` command like [`Cluster::kubectl`], which finds plugins in `folder`. It gets
    /// the administrator's configuration from its environment, as a plugin does.
    pub fn kubectl_plugin<S: AsRef<OsStr>>(
        &self,
        folder: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = in_netns(CONTROL_PLANE, bin().join("kubectl"));
        command
            .args(args)
            .env("KUBECONFIG", self.pki("admin.conf"))
            .env("KUBECACHEDIR", self.dir.join("kubectl-cache"))
            .env("PATH", format!("{}:{}", folder.display(), path()));
        command
    }

    /// Creates all `objects` in one kubectl call.
    pub fn create(&self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        sh::feed(
            &mut self.kubectl(["create", "-f", "-"]),
            list.to_string().as_bytes(),
        )?;
        Ok(())
    }

    /// Path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.pki("admin.conf")
    }

    /// Returns a path outside the node that leads to the node's root folder with all its mounts.
    pub fn root(&self, node: Node) -> Result<PathBuf> {
        Ok(Path::new("/proc").join(self.pid(node)?).join("root"))
    }

    /// Returns a command that runs `command` in the node's network and mount namespaces.
    pub fn on<S: AsRef<OsStr>>(
        &self,
        node: Node,
        command: impl IntoIterator<Item = S>,
    ) -> Result<Command> {
        let mut enter = sh::cmd(
            "nsenter",
            ["--target", &self.pid(node)?, "--net", "--mount", "--"],
        );
        enter.args(command).env("PATH", path()).current_dir("/");
        Ok(enter)
    }

    fn pid(&self, node: Node) -> Result<String> {
        let file = self.node_dir(node).join("pid");
        let pid = std::fs::read_to_string(&file)
            .with_context(|| format!("{node} is not running: {}", file.display()))?;
        Ok(pid.trim().to_owned())
    }
}

/// Returns a command that runs `program` in a named network namespace, but with the mounts of the
/// host.
pub fn in_netns(netns: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = sh::cmd("nsenter", [format!("--net=/run/netns/{netns}")]);
    command.arg("--").arg(program).env("PATH", path());
    command
}

/// Returns the folder that contains the programs of Kubernetes and containerd.
pub(crate) fn bin() -> PathBuf {
    sh::cache().join("k8s")
}

/// Search path of the cluster's processes: the cluster's programs first, /usr/sbin and /sbin last.
fn path() -> String {
    format!(
        "{}:{}:/usr/sbin:/sbin",
        bin().display(),
        std::env::var("PATH").unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_behind_the_router_are_on_another_link() -> Result<()> {
        let nodes = Node::first(2, 1)?;
        let [near, _, far] = nodes[..] else {
            bail!("{} nodes", nodes.len());
        };
        assert_eq!([near.is_far(), far.is_far()], [false, true]);
        let addresses = [far.address().to_string(), far.address6().to_string()];
        assert_eq!(
            (far.to_string().as_str(), addresses),
            ("n6", ["10.98.0.16", "fd98::16"].map(String::from))
        );
        for (near, far) in [(0, 0), (6, 0), (1, 5)] {
            assert!(Node::first(near, far).is_err(), "{near} {far}");
        }
        Ok(())
    }

    #[test]
    fn a_node_is_parsed_from_the_name_it_prints() {
        let node: Node = "n2".parse().expect("a node");
        assert_eq!(node.to_string(), "n2");
        assert_eq!(node.pod_cidr(), "10.244.2.0/24");
        assert_eq!(node.address6().to_string(), "fd99::12");
        for wrong in ["n0", "n10", "2", "node", ""] {
            assert!(wrong.parse::<Node>().is_err(), "{wrong}");
        }
    }
}
