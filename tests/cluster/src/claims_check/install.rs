//! Claims on the nodes of the cluster, enabled by the chart's values.

use anyhow::{Context, Result, ensure};
use braid_testbed::chart::{self, objects};
use braid_testbed::{Cluster, Node, deploy, sh, wait};
use serde_json::Value;
use std::time::Duration;

/// Values of the chart. A veth reports 10G, which the test machine does not reach.
const VALUES: [&str; 4] = [
    "--set=dra.enabled=true",
    "--set=dra.nodesReadClaims=true",
    "--set-json=dra.include=[\"eth1\",\"eth2\"]",
    "--set-json=dra.capacity={\"eth*\":\"1G\"}",
];
const DRIVER: &str = "braid.dev";
const LIMIT: Duration = Duration::from_mins(1);
/// Kinds of the objects of deploy/dra.yaml, which deploy/braid.yaml lacks.
const DRA: &str = "deploy/dra.yaml";

/// Enables claims, and waits until each node offers its links.
pub(super) fn enable(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    apply(cluster, &chart::render(&VALUES)?)?;
    for node in nodes {
        await_devices(cluster, node, &["eth1", "eth1-whole", "eth2", "eth2-whole"])?;
    }
    println!("the nodes offer their links");
    Ok(())
}

/// Disables claims, and waits until no node offers a device.
pub(super) fn disable(cluster: &Cluster) -> Result<()> {
    apply(cluster, &chart::render::<&str>(&[])?)?;
    wait::eventually(LIMIT, || {
        let slices = sh::read(&mut cluster.kubectl(["get", "resourceslices", "-o", "name"]))?;
        ensure!(slices.is_empty(), "slices after the end: {slices}");
        Ok(())
    })?;
    println!("the nodes offer no links any more");
    Ok(())
}

/// Deletes classes and rights.
pub(super) fn remove(cluster: &Cluster) -> Result<()> {
    let delete = ["delete", "--ignore-not-found", "-f", DRA];
    sh::read(&mut cluster.kubectl(delete)).map(drop)
}

fn apply(cluster: &Cluster, manifest: &str) -> Result<()> {
    ensure!(!objects(manifest)?.is_empty(), "the chart has no objects");
    let mut apply = cluster.kubectl(["apply", "-f", "-"]);
    sh::feed(&mut apply, manifest.as_bytes())?;
    deploy::roll_out(cluster)
}

/// Waits until the node offers exactly these devices.
pub(super) fn await_devices(cluster: &Cluster, node: Node, expected: &[&str]) -> Result<()> {
    wait::eventually(LIMIT, || {
        let found = devices(cluster, node)?;
        ensure!(found == expected, "{node} offers {found:?}");
        Ok(())
    })
}

/// Returns the names of the devices that braid offers on a node.
fn devices(cluster: &Cluster, node: Node) -> Result<Vec<String>> {
    let list = sh::read(&mut cluster.kubectl(["get", "resourceslices", "-o", "json"]))?;
    let list: Value = serde_json::from_str(&list).context("parse the slices")?;
    let mut names = Vec::new();
    for slice in list["items"].as_array().into_iter().flatten() {
        let spec = &slice["spec"];
        if spec["driver"] != DRIVER || spec["nodeName"] != node.to_string() {
            continue;
        }
        let devices = spec["devices"].as_array();
        let devices = devices.into_iter().flatten();
        names.extend(devices.filter_map(|device| device["name"].as_str().map(str::to_owned)));
    }
    names.sort_unstable();
    Ok(names)
}
