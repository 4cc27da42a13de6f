//! From flanneld inside k3s to mode `flannel` of the agent, and back. A process of flanneld on each
//! node replaces that of k3s, and the nodes have the folders of k3s.

use crate::pods::MOVE as APP;
use crate::rounds::Rounds;
use crate::runbook::Runbook;
use crate::snapshot::{self, Snapshot};
use anyhow::{Context, Result, ensure};
use braid_testbed::chart::{self, RELEASE};
use braid_testbed::{Cluster, Node, Service, deploy, node, sh, tools, wait};
use serde_json::json;
use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::time::Duration;

const HEADING: &str = "k3s without its flannel";
/// Folders of plugins and of configurations: the usual ones, and those of k3s.
const FOLDERS: [(&str, &str); 2] = [
    ("/opt/cni/bin", "/var/lib/rancher/k3s/data/cni"),
    ("/etc/cni/net.d", "/var/lib/rancher/k3s/agent/etc/cni/net.d"),
];
/// Address range of pods in the commands of the page, and that of this cluster.
const RANGE: (&str, &str) = ("10.42.0.0/16", "10.244.0.0/16");
/// Value of the chart on which the removal depends.
const DISTRIBUTION: &str = "--set=distribution=k3s";
/// Longest time until flanneld has written its file.
const LIMIT: Duration = Duration::from_secs(30);
const SUBNET_FILE: &str = "run/flannel/subnet.env";

/// flanneld of a node, killed when dropped, as by the end of k3s.
struct Flanneld(Child);

impl Drop for Flanneld {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn run(cluster: &Cluster, runbook: &Runbook<'_>, nodes: [Node; 2]) -> Result<()> {
    for node in nodes {
        for (from, to) in FOLDERS {
            node::relocate(cluster, node, from, to)?;
        }
        Service::Containerd.kill(node)?;
        write_conflist(cluster, node)?;
    }
    let inside = start_all(cluster, nodes)?;
    deploy::prepare(cluster)?;
    wait::nodes(cluster)?;
    let mut rounds = Rounds::start(cluster, APP, |_| None)?;
    rounds.check("all nodes have k3s' flanneld", &[])?;
    rounds.clear()?;
    let before = Snapshot::of_all(cluster, &nodes)?;
    runbook.run_with((HEADING, 0), None, RANGE)?;
    for (at, node) in nodes.iter().enumerate() {
        runbook.run((HEADING, 1), Some(*node))?;
        rounds.check(
            &format!("{node} has an agent beside flanneld"),
            &nodes[..=at],
        )?;
    }
    drop(inside);
    rounds.check("k3s has restarted without flanneld", &nodes)?;
    let _inside = start_all(cluster, nodes)?;
    rounds.check("k3s has restarted with flanneld", &nodes)?;
    rounds.clear()?; // as by a drain
    uninstall(cluster, nodes)?;
    rounds.check("all nodes are back", &[])?;
    rounds.clear()?;
    for node in nodes {
        deploy::ensure_restored(cluster, node)?;
    }
    snapshot::compare(&before, &Snapshot::of_all(cluster, &nodes)?)?;
    println!("nothing of braid is left on {} nodes", nodes.len());
    rounds.end()
}

/// Writes the conflist of k3s, in the version of the plugin that the nodes have.
fn write_conflist(cluster: &Cluster, node: Node) -> Result<()> {
    let delegate = json!({"hairpinMode": true, "forceAddress": true, "isDefaultGateway": true});
    let list = json!({"name": "cbr0", "cniVersion": "0.3.1", "plugins": [
        {"type": "flannel", "delegate": delegate},
        {"type": "portmap", "capabilities": {"portMappings": true}},
        {"type": "bandwidth", "capabilities": {"bandwidth": true}},
    ]});
    let path = cluster
        .root(node)?
        .join("etc/cni/net.d/10-flannel.conflist");
    fs::write(&path, format!("{list:#}\n")).with_context(|| format!("write {}", path.display()))
}

fn start_all(cluster: &Cluster, nodes: [Node; 2]) -> Result<Vec<Flanneld>> {
    nodes.iter().map(|node| start(cluster, *node)).collect()
}

/// Starts flanneld and waits for its file.
fn start(cluster: &Cluster, node: Node) -> Result<Flanneld> {
    let conf = cluster.dir().join("net-conf.json");
    let text = json!({"Network": RANGE.1, "Backend": {"Type": "vxlan"}});
    fs::write(&conf, text.to_string()).context("write flanneld's configuration")?;
    let log = cluster.dir().join(format!("log/flanneld-{node}"));
    let log = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let mut command = cluster.on(node, [tools::flanneld()?])?;
    command
        .args(["--kube-subnet-mgr", "--ip-masq", "--iface=eth0"])
        .arg(format!(
            "--kubeconfig-file={}",
            cluster.kubeconfig().display()
        ))
        .arg(format!("--net-config-path={}", conf.display()))
        .env("NODE_NAME", node.to_string())
        .stdout(Stdio::null())
        .stderr(log);
    let flanneld = Flanneld(command.spawn().context("start flanneld")?);
    let file = cluster.root(node)?.join(SUBNET_FILE);
    wait::until("flanneld has written its file", LIMIT, || Ok(file.exists()))?;
    Ok(flanneld)
}

/// Removes braid by the notes of the chart, then the `ConfigMap` and the labels.
fn uninstall(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let patch = format!("--patch={}", chart::removal(&[DISTRIBUTION])?);
    let patch = ["patch", "daemonset/braid", "-n", "kube-system", &patch];
    sh::read(&mut cluster.kubectl(patch))?;
    deploy::roll_out(cluster)?;
    let uninstall = [
        "uninstall",
        RELEASE,
        "--namespace=kube-system",
        "--cascade=foreground",
        "--wait",
    ];
    sh::read(&mut chart::helm_of(cluster, &uninstall)?)?;
    let map = [
        "delete",
        "configmap",
        "kube-flannel-cfg",
        "-n",
        "kube-system",
    ];
    sh::read(&mut cluster.kubectl(map))?;
    for node in nodes {
        let name = node.to_string();
        sh::read(&mut cluster.kubectl(["label", "node", &name, "braid-agent-"]))?;
        let runs = ["get", "pods", "-n", "kube-system", "-o", "name"];
        let runs = sh::read(&mut cluster.kubectl(runs))?;
        ensure!(!runs.contains("braid"), "left of the release: {runs}");
    }
    Ok(())
}
