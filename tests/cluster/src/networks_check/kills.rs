//! Services of the nodes that are killed while pods are created, and again while pods are deleted.

use super::{APP, LIMIT, await_nothing_left, manifests, traces};
use crate::{leftovers, pods};
use anyhow::Result;
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, Service, deploy, wait};
use std::time::Instant;

/// The services are killed as soon as one in `PART` pods is Ready, or deleted.
const PART: usize = 4;

pub(super) fn check(cluster: &Cluster, nodes: [Node; 2], count: u16) -> Result<()> {
    let [node, other] = nodes;
    for services in [
        [(node, Service::Kubelet), (other, Service::Containerd)],
        [(node, Service::Containerd), (other, Service::Kubelet)],
    ] {
        wave(cluster, nodes, count, services)?;
    }
    Ok(())
}

/// Kills services while pods are created, and again while they are deleted. All pods must become
/// Ready in between, and be deleted at the end.
fn wave(
    cluster: &Cluster,
    nodes: [Node; 2],
    count: u16,
    services: [(Node, Service); 2],
) -> Result<()> {
    let all = manifests::attached(count, nodes);
    let part = all.len() / PART;
    let kill = || {
        services
            .iter()
            .try_for_each(|(node, service)| service.kill(*node))
    };
    let mut watch = pods::Watch::start(cluster, APP)?;
    let start = Instant::now();
    cluster.create(&all)?;
    watch.until("became Ready", part, pods::is_ready)?;
    kill()?;
    // braid's token for the API server outlives the pod of its `DaemonSet`.
    deploy::restart(cluster)?;
    pods::await_ready(cluster, APP)?;
    println!(
        "{count} pods Ready after {:.1} s: {}, and the DaemonSet restarted",
        start.elapsed().as_secs_f64(),
        told(services)
    );
    super::attached::check(cluster, (APP, nodes), manifests::names)?;

    let traces = traces(cluster, nodes)?;
    let start = Instant::now();
    sh::read(&mut cluster.kubectl(["delete", "pod", "--wait=false", "-l", &format!("app={APP}")]))?;
    watch.until("were gone", part, pods::is_gone)?;
    kill()?;
    pods::delete(cluster, "pod", APP)?;
    println!(
        "all gone {:.1} s after their deletion: {}",
        start.elapsed().as_secs_f64(),
        told(services)
    );
    wait::nodes(cluster)?;
    wait::until("the runtimes have no sandbox left", LIMIT, || {
        has_no_sandbox(cluster, nodes)
    })?;
    for node in nodes {
        match leftovers::delete_forgotten(cluster, node)? {
            0 => {}
            count => println!(
                "{count} empty namespaces on {node} that its runtime forgot when it was killed"
            ),
        }
    }
    await_nothing_left(cluster, &traces)
}

fn has_no_sandbox(cluster: &Cluster, nodes: [Node; 2]) -> Result<bool> {
    for node in nodes {
        if !pods::sandboxes(cluster, node, APP)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn told(services: [(Node, Service); 2]) -> String {
    services
        .map(|(node, service)| format!("{service} of {node} killed"))
        .join(", ")
}
