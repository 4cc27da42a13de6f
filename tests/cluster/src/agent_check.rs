//! Check that deploy/braid.yaml makes a cluster of machines without any network for pods, and that
//! nodes can join, restart and leave.

use crate::pods;
use crate::smoke;
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, deploy, wait};
use serde_json::{Value, json};
use std::time::Duration;

const APP: &str = pods::AGENT;
/// Number of pods that wait for the network when the manifest is applied.
const EARLY: u32 = 6;
/// Number of pods for each later state of the cluster: a few on each node.
const PODS: u32 = 8;
/// Longest time until the routes of a node follow a change of the cluster.
const LIMIT: Duration = Duration::from_secs(20);
/// Node that joins and leaves.
const GUEST: &str = "n3";

pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes()? {
        ensure!(
            !deploy::has_braid(cluster, node)?,
            "{node} has braid already, so its installation cannot be checked"
        );
    }
    early(cluster)?;
    let smoke = || {
        smoke::run(
            cluster,
            &smoke::Options {
                pods: PODS,
                lenient: false,
            },
        )
    };
    smoke()?;
    let guest: Node = GUEST.parse().map_err(anyhow::Error::msg)?;
    change("add")?;
    deploy::load(cluster)?;
    wait::nodes(cluster)?;
    println!("{guest} has joined");
    smoke().context("with a node that joined")?;
    change("reboot")?;
    wait::nodes(cluster)?;
    println!("{guest} has restarted");
    smoke().context("with a node that restarted")?;
    change("remove")?;
    for node in cluster.nodes()? {
        wait::eventually(LIMIT, || without(cluster, node, guest))?;
    }
    println!("{guest} has left, and the other nodes have no routes to it");
    smoke().context("without the node that left")
}

/// Adds, restarts or removes the guest.
fn change(verb: &str) -> Result<()> {
    sh::run(&mut sh::cmd("cargo", ["xtask", "cluster", verb, GUEST]))
}

/// Creates pods, then applies the manifest. Fails if a pod was tried before the node could serve
/// it.
fn early(cluster: &Cluster) -> Result<()> {
    let mut spec = pods::spec("exec sleep 1000000");
    // The scheduler keeps other pods away from nodes that are not Ready.
    spec["tolerations"] = json!([]);
    let early: Vec<Value> = (0..EARLY)
        .map(|number| pods::pod(&format!("{APP}-{number}"), APP, &spec))
        .collect();
    cluster.create(&early)?;
    deploy::bring(cluster)?;
    pods::await_ready(cluster, APP)?;
    let failed = [
        "get",
        "events",
        "--all-namespaces",
        "--field-selector=reason=FailedCreatePodSandBox",
        "-o=jsonpath={.items[*].message}",
    ];
    let failed = sh::read(&mut cluster.kubectl(failed))?;
    ensure!(failed.is_empty(), "pods were tried too early: {failed}");
    println!("{EARLY} pods that waited for the network are Ready, and none was tried before");
    pods::delete(cluster, "pod", APP)
}

/// Fails while the node has routes, neighbours or forwarding entries to the pods of `gone`.
fn without(cluster: &Cluster, node: Node, gone: Node) -> Result<()> {
    for list in [
        "ip route show table all",
        "ip -6 route show table all",
        "ip neigh show nud permanent",
        "bridge fdb show dev braid-vxlan",
    ] {
        // A node without the VXLAN link has no entries.
        let listed = sh::read(&mut cluster.on(node, list.split(' '))?).unwrap_or_default();
        for line in listed.lines() {
            ensure!(
                !deploy::is_about(line, gone),
                "{node} still has {line:?} of `{list}`"
            );
        }
    }
    Ok(())
}
