//! From Multus to braid and back. The networks of the pods have host-local, and each node has a range
//! of its own.

use crate::multus_check::{self, config, objects, remove};
use crate::pods::{self, MOVE, MULTUS as APP};
use crate::rounds::Rounds;
use crate::runbook::Runbook;
use anyhow::{Context, Result};
use braid_testbed::{Cluster, Node, deploy, multus, tools, wait};
use config::Form;
use serde_json::{Value, json};
use std::fs;

const HEADING: &str = "Multus";
/// Page and heading of the removal.
const REMOVAL: (&str, &str) = ("kubernetes.md", "Remove");
/// Path of Multus' plugin below the root of a node.
const PLUGIN: &str = "opt/cni/bin/multus";

pub(super) fn run(cluster: &Cluster, runbook: &Runbook<'_>, nodes: [Node; 2]) -> Result<()> {
    install(cluster, nodes)?;
    let mut rounds = Rounds::start(cluster, MOVE, |node| Some(network_of(node)))?;
    rounds.check("all nodes have Multus", &[])?;
    runbook.run((HEADING, 0), None)?;
    rounds.check("all nodes have braid", &nodes)?;
    rounds.check("only braid has attached pods", &nodes)?;
    // In place of a drained node: the ends of connections are pods that Multus attached.
    rounds.clear()?;
    Runbook::read(cluster, REMOVAL.0)?.run((REMOVAL.1, 0), None)?;
    for node in nodes {
        deploy::ensure_restored(cluster, node)?;
        deploy::ensure_unused(cluster, node)?;
    }
    rounds.check("all nodes have Multus again", &[])?;
    rounds.end()?;
    for node in nodes {
        config::delete(&cluster.root(node)?.join(PLUGIN))?;
    }
    pods::delete(cluster, "net-attach-def", APP)?;
    remove(cluster, nodes)
}

/// Installs Multus on the nodes, and creates the networks.
fn install(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    cluster.create(&objects(cluster)?)?;
    multus_check::await_definition(cluster)?;
    let entrypoint = multus::entrypoint()?;
    let program = tools::multus()?.join("multus");
    for node in nodes {
        let to = cluster.root(node)?.join(PLUGIN);
        fs::copy(&program, &to).with_context(|| format!("copy Multus to {node}"))?;
        config::write(cluster, node, Form::List, (&entrypoint, "multus"))
            .with_context(|| format!("configure {node}"))?;
    }
    deploy::prepare(cluster)?;
    cluster.create(&nodes.map(network))?;
    wait::nodes(cluster)
}

fn network_of(node: Node) -> String {
    format!("lan-{node}")
}

/// Returns a macvlan network on the link that the nodes share.
fn network(node: Node) -> Value {
    let number: u8 = node
        .to_string()
        .trim_start_matches('n')
        .parse()
        .unwrap_or_default();
    let ipam = json!({"type": "host-local", "subnet": "192.0.2.0/24",
        "rangeStart": format!("192.0.2.{}", number * 20), "rangeEnd": format!("192.0.2.{}", number * 20 + 9)});
    let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "ipam": ipam});
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": network_of(node), "labels": {"app": APP}},
        "spec": {"config": config.to_string()},
    })
}
