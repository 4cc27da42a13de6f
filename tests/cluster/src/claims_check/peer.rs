//! A driver of the same shape as braid's, made of Kubernetes' Go library for drivers, for comparison. It
//! attaches nothing to its pods.

use super::manifests::{self, APP, devices};
use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node, sh, tools, wait};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// Name of the claim template of pods with a claim of the peer.
pub(super) const TEMPLATE: &str = "peer";
/// Name of the driver, which its class and its attributes have too. It is also in the driver's source.
const NAME: &str = "peer.braid.dev";
/// Longest time until the nodes offer their devices, and until nothing of the driver is left.
const LIMIT: Duration = Duration::from_secs(30);
/// Files of the driver on a node.
const FILES: [&str; 2] = [
    "var/lib/kubelet/plugins/peer.braid.dev",
    "var/lib/kubelet/plugins_registry/peer.braid.dev-reg.sock",
];

/// The running drivers and their class. When dropped, deletes the pods of the check and the class, and
/// ends the drivers.
pub(super) struct Peer<'c> {
    cluster: &'c Cluster,
    drivers: Vec<(Node, Child)>,
}

impl<'c> Peer<'c> {
    /// Starts a driver on each node. Waits until the kubelets have registered them and the nodes offer their
    /// devices.
    pub(super) fn start(cluster: &'c Cluster, nodes: &[Node]) -> Result<Self> {
        let program = tools::dra_peer()?;
        let mut peer = Self {
            cluster,
            drivers: Vec::new(),
        };
        let mut apply = cluster.kubectl(["apply", "-f", "-"]);
        sh::feed(&mut apply, class().to_string().as_bytes())?;
        for node in nodes {
            let driver = spawn(cluster, *node, &program)?;
            peer.drivers.push((*node, driver));
        }
        // The driver offers its device once it is registered.
        wait::eventually(LIMIT, || {
            let found = offering(cluster)?;
            let logs = log(cluster, nodes[0]);
            ensure!(
                nodes.iter().map(Node::to_string).eq(found.iter().cloned()),
                "{NAME} has devices on {found:?}: {}",
                logs.display()
            );
            Ok(())
        })?;
        Ok(peer)
    }

    /// Deletes the pods of the check and ends the drivers. Fails unless they leave nothing.
    pub(super) fn end(mut self) -> Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> Result<()> {
        // The kubelet needs the driver to delete a pod with a claim.
        let deleted = pods::delete(self.cluster, "pod", APP);
        for (_, driver) in &mut self.drivers {
            drop(driver.stdin.take()); // which ends the driver
        }
        for (node, mut driver) in self.drivers.drain(..) {
            let ended = wait::until("the driver ends", LIMIT, || {
                Ok(driver.try_wait()?.is_some())
            });
            // This fails if the driver has ended already.
            let _ = driver.kill();
            let status = driver.wait().context("wait for the driver")?;
            let log = log(self.cluster, node);
            ended.with_context(|| log.display().to_string())?;
            ensure!(status.success(), "{}: {status}", log.display());
        }
        let delete = ["delete", "deviceclass", NAME, "--ignore-not-found"];
        sh::read(&mut self.cluster.kubectl(delete))?;
        deleted.and(ensure_none(self.cluster))
    }
}

impl Drop for Peer<'_> {
    fn drop(&mut self) {
        if let Err(err) = self.stop() {
            eprintln!("end {NAME}: {err:#}");
        }
    }
}

/// Returns the template of claims like those of braid in the same check.
pub(super) fn template() -> Value {
    let expression = format!("device.attributes['{NAME}'].ifName == 'eth1'");
    let request = json!({
        "deviceClassName": NAME,
        "selectors": [{"cel": {"expression": expression}}],
        "capacity": {"requests": {"bandwidth": "10M"}},
    });
    let requests = [json!({"name": "nic", "exactly": request})];
    manifests::template(TEMPLATE, &devices(&requests, &[]))
}

fn class() -> Value {
    let expression = format!("device.driver == '{NAME}' && device.allowMultipleAllocations");
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": NAME, "labels": {"app": APP}},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    })
}

/// Starts the driver of a node. It runs until its standard input ends, so also until this process ends.
fn spawn(cluster: &Cluster, node: Node, program: &Path) -> Result<Child> {
    let path = log(cluster, node);
    let log = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let mut command = cluster.on(node, [program])?;
    command
        .arg(format!("--node={node}"))
        .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log);
    command.spawn().with_context(|| format!("start {NAME}"))
}

fn log(cluster: &Cluster, node: Node) -> PathBuf {
    cluster.dir().join(format!("log/dra-peer-{node}"))
}

/// Returns the names of the nodes on which the driver offers its device.
fn offering(cluster: &Cluster) -> Result<Vec<String>> {
    let selector = format!("--field-selector=spec.driver={NAME}");
    let path = "-o=jsonpath={range .items[*]}{.spec.nodeName}{\"\\n\"}{end}";
    let names = sh::read(&mut cluster.kubectl(["get", "resourceslices", &selector, path]))?;
    let mut names: Vec<String> = names.lines().map(str::to_owned).collect();
    names.sort_unstable();
    Ok(names)
}

/// Fails if a slice or a file of the driver is left.
fn ensure_none(cluster: &Cluster) -> Result<()> {
    let nodes = offering(cluster)?;
    ensure!(nodes.is_empty(), "{NAME} has left devices on {nodes:?}");
    for node in cluster.nodes()? {
        for file in FILES {
            let path = cluster.root(node)?.join(file);
            ensure!(!path.exists(), "{NAME} has left {}", path.display());
        }
    }
    Ok(())
}
