//! Check that nodes move from flanneld to the agent's mode `flannel` and back, one after the other,
//! by the commands of docs/flannel.md. flannel runs by its own manifest.
//!
//! ```text
//!  end n1 ── TCP ── end n2 ── TCP ── end n3 (or n6, behind a router) ── TCP ── end n1
//!  state: all flannel │ n1 moved │ n1, n2 moved │ all moved │ n1 back │ … │ all flannel
//!         in each: a new pod on every node, which reaches all pods of this state and the last one
//! ```

use crate::pods::MOVE as APP;
use crate::rounds::{Expected, Rounds, is_record};
use crate::runbook::Runbook;
use crate::snapshot::{self, Snapshot};
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node, deploy, flannel, sh, wait};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest time until flannel's pods run.
const LIMIT: Duration = Duration::from_mins(2);
const PAGE: &str = "flannel.md";
const MOVE: &str = "Move a cluster";
const BACK: &str = "Move a node back";
const DAEMON_SET: &str = "daemonset/kube-flannel-ds";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Backend of flannel
    #[arg(value_enum)]
    backend: Backend,
}

#[derive(Clone, Copy, ValueEnum)]
enum Backend {
    /// VXLAN, direct routes for nodes on one link, both families, rules of iptables
    Vxlan,
    /// Routes for nodes on one link, rules of nftables
    HostGw,
}

impl Backend {
    fn net_conf(self) -> Value {
        match self {
            Self::Vxlan => json!({
                "Network": "10.244.0.0/16",
                "EnableIPv6": true,
                "IPv6Network": "fd00:244::/48",
                "Backend": {"Type": "vxlan", "DirectRouting": true},
            }),
            Self::HostGw => json!({
                "Network": "10.244.0.0/16",
                "EnableNFTables": true,
                "Backend": {"Type": "host-gw"},
            }),
        }
    }
}

pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let nodes = cluster.nodes()?;
    ensure!(
        nodes.len() > 2,
        "{} nodes, and this check needs three",
        nodes.len()
    );
    for node in &nodes {
        ensure!(
            !deploy::has_braid(cluster, *node)?,
            "{node} has braid already, so it cannot move"
        );
    }
    bring(cluster, options.backend)?;
    deploy::prepare(cluster)?;
    let runbook = Runbook::read(cluster, PAGE)?;
    let mut rounds = Rounds::start(cluster, APP, |_| None)?;
    rounds.check("all nodes have flanneld", &[])?;
    rounds.clear()?;
    let before = Snapshot::of_all(cluster, &nodes)?;
    runbook.run((MOVE, 0), None)?;
    runbook.run((MOVE, 1), None)?;
    roll_out(cluster)?;
    rounds.check("flanneld has restarted everywhere", &[])?;
    for (at, node) in nodes.iter().enumerate() {
        runbook.run((MOVE, 2), Some(*node))?;
        rounds.check(&format!("{node} has moved"), &nodes[..=at])?;
    }
    for (at, node) in nodes.iter().enumerate() {
        // flannel's plugins detach the pods of the first node that braid attached.
        let is_drained = at > 0;
        back(cluster, &runbook, (&rounds, is_drained), *node)?;
        rounds.check_all(&Expected {
            state: &format!("{node} has moved back"),
            moved: &nodes[at + 1..],
            except: is_record,
        })?;
    }
    runbook.run((BACK, 2), None)?;
    rounds.clear()?;
    let mut after = Snapshot::of_all(cluster, &nodes)?;
    after[0].forget(is_left_by_pods);
    snapshot::compare(&before, &after)?;
    println!("nothing of braid is left on {} nodes", nodes.len());
    rounds.end()
}

/// Installs flannel by its own manifest.
fn bring(cluster: &Cluster, backend: Backend) -> Result<()> {
    let objects = flannel::manifest(&backend.net_conf())?;
    flannel::load_images(cluster, &objects)?;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    sh::feed(
        &mut cluster.kubectl(["apply", "-f", "-"]),
        list.to_string().as_bytes(),
    )?;
    wait::nodes(cluster)?;
    roll_out(cluster)
}

fn roll_out(cluster: &Cluster) -> Result<()> {
    let status = ["rollout", "status", DAEMON_SET, "-n", flannel::NAMESPACE];
    sh::read(cluster.kubectl(status).arg(wait::timeout(LIMIT))).map(drop)
}

/// Moves a node back, and removes braid from it.
fn back(
    cluster: &Cluster,
    runbook: &Runbook<'_>,
    (rounds, is_drained): (&Rounds<'_>, bool),
    node: Node,
) -> Result<()> {
    runbook.run((BACK, 0), Some(node))?;
    wait::eventually(LIMIT, || {
        let pods = ["get", "pods", "-n", flannel::NAMESPACE, "-l", "app=flannel"];
        let mut list = cluster.kubectl(pods);
        list.arg(format!("--field-selector=spec.nodeName={node}"));
        list.arg(r#"-o=jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}"#);
        let ready = sh::read(&mut list)?;
        ensure!(
            ready == "True",
            "flanneld of {node} is not ready: {ready:?}"
        );
        Ok(())
    })?;
    if is_drained {
        let drained = rounds.drain(node)?;
        rounds.await_none(node, &drained)?;
    }
    runbook.run_on(node, (BACK, 1)).context("remove braid")
}

/// True for state of braid that stays until the next boot on a node that was not drained.
fn is_left_by_pods(line: &str) -> bool {
    line.contains("/run/braid/") || line.ends_with("table inet braid")
}
