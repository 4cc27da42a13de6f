//! Addresses that stay with a name: a `StatefulSet` that moves to the other node, and an IPAMClaim.

use super::pool::{APP, IDLE, NETWORK, PAYMENT, addresses, pool};
use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node, sh, wait};
use serde_json::{Value, json};

const SET: &str = "ipam-set";
const CLAIM: &str = "ipam-vm";

/// Moves a `StatefulSet` of one pod, and then two pods with one claim.
pub(super) fn check(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    move_set(cluster, nodes)?;
    keep_claim(cluster, nodes)
}

fn move_set(cluster: &Cluster, [from, to]: [Node; 2]) -> Result<()> {
    cluster.create(&[set(from)])?;
    let rolled_out = || {
        let set = format!("statefulset/{SET}");
        let status = ["rollout", "status", &set, "--timeout=3m"];
        sh::read(&mut cluster.kubectl(status)).map(drop)
    };
    rolled_out()?;
    let before = only(cluster, from)?;
    let template = json!({"spec": {"template": {"spec": {"nodeSelector": on(to)}}}});
    let template = template.to_string();
    let patch = ["patch", "statefulset", SET, "--type=merge", "-p", &template];
    sh::read(&mut cluster.kubectl(patch))?;
    rolled_out()?;
    let after = only(cluster, to)?;
    ensure!(after == before, "{SET}-0 had {before}, and has {after}");
    pods::delete(cluster, "statefulset,pod", APP)?;
    println!("a StatefulSet's pod has its address on the other node too");
    Ok(())
}

fn keep_claim(cluster: &Cluster, [from, to]: [Node; 2]) -> Result<()> {
    cluster.create(&[json!({
        "apiVersion": "k8s.cni.cncf.io/v1alpha1",
        "kind": "IPAMClaim",
        "metadata": {"name": CLAIM, "labels": {"app": APP}},
        "spec": {"network": NETWORK, "interface": "net1"},
    })])?;
    let networks = json!([{"name": NETWORK, "ipam-claim-reference": CLAIM}]).to_string();
    let mut kept = None;
    for (name, node) in [("ipam-first", from), ("ipam-second", to)] {
        cluster.create(&[pods::requesting(name, APP, node, &networks)])?;
        pods::await_ready(cluster, APP)?;
        let address = only(cluster, node)?;
        let before = kept.get_or_insert(address.clone());
        ensure!(
            *before == address,
            "{CLAIM} had {before}, and {name} has {address}"
        );
        pods::delete(cluster, "pod", APP)?;
        wait::eventually(PAYMENT, || {
            let claimed = claimed(cluster)?;
            ensure!(
                claimed.len() == 1,
                "the pool has {claimed:?}, not {CLAIM} alone"
            );
            Ok(())
        })?;
    }
    pods::delete(cluster, "ipamclaim", APP)?;
    wait::eventually(IDLE, || {
        let claimed = claimed(cluster)?;
        ensure!(
            claimed.is_empty(),
            "{CLAIM} is deleted, and the pool has {claimed:?}"
        );
        Ok(())
    })?;
    println!("a claim has its address on both nodes, until it is deleted");
    Ok(())
}

fn on(node: Node) -> Value {
    json!({"kubernetes.io/hostname": node.to_string()})
}

fn set(node: Node) -> Value {
    let mut spec = pods::spec("exec sleep 1000000");
    spec["nodeSelector"] = on(node);
    let labels = json!({"app": APP});
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": SET, "labels": labels},
        "spec": {
            "serviceName": SET,
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {pods::NETWORKS: NETWORK}},
                "spec": spec,
            },
        },
    })
}

/// Returns the address of the only pod, which is on `node`.
fn only(cluster: &Cluster, node: Node) -> Result<String> {
    let pods = addresses(cluster)?;
    let names: Vec<&String> = pods.keys().collect();
    ensure!(names.len() == 1, "not one pod: {names:?}");
    let (name, (found, address)) = pods.into_iter().next().context("no pod")?;
    ensure!(found == node, "{name} is on {found}, not {node}");
    Ok(address)
}

/// Returns the entries of claims in the pool.
fn claimed(cluster: &Cluster) -> Result<Vec<String>> {
    let pool = pool(cluster)?;
    let entries = pool["spec"]["allocations"].as_object();
    let ids = entries
        .into_iter()
        .flatten()
        .filter_map(|(_, entry)| entry["id"].as_str());
    let claims = ids.filter(|id| id.starts_with("claim:"));
    Ok(claims.map(str::to_owned).collect())
}
