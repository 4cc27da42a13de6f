//! Check that deploy/braid.yaml installs braid on nodes with another network, which stays the
//! default network, and that deploy/remove.yaml removes it.

use crate::leftovers::{self, Traces};
use crate::{pods, smoke};
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, deploy, wait};
use std::time::Duration;

/// Number of pods: a few on each node.
const PODS: u32 = 6;
const APP: &str = pods::AGENT;
/// Longest time until the runtimes have cleaned up.
const LIMIT: Duration = Duration::from_mins(1);

/// Installs braid on the nodes, runs pods with it, and removes it.
pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes()? {
        let has_braid = deploy::has_braid(cluster, node)?;
        ensure!(
            !has_braid,
            "{node} has braid already, so its installation cannot be checked"
        );
    }
    let checked = earlier(cluster).and_then(|()| pods(cluster));
    // This restores the cluster even after a failed check. The error of the check takes precedence.
    let taken_off = deploy::take_off(cluster);
    checked.and(taken_off)
}

/// Installs braid while pods run that other plugins attached. Fails if braid leaves something of
/// them behind.
fn earlier(cluster: &Cluster) -> Result<()> {
    let spec = pods::spec("exec sleep 1000000");
    let pod = |number| pods::pod(&format!("{APP}-{number}"), APP, &spec);
    cluster.create(&(0..PODS).map(pod).collect::<Vec<_>>())?;
    pods::await_ready(cluster, APP)?;
    let mut traces = Vec::new();
    for node in cluster.nodes()? {
        traces.push((node, Traces::of(cluster, node, APP)?));
    }
    deploy::bring(cluster)?;
    pods::delete(cluster, "pod", APP)?;
    wait::eventually(LIMIT, || {
        traces
            .iter()
            .try_for_each(|(node, traces)| leftovers::ensure_none(cluster, *node, traces))
    })
    .context("pods that other plugins attached")?;
    println!("nothing left of {PODS} pods that other plugins attached");
    Ok(())
}

/// Checks that pods get their network from braid, and that braid keeps a record of each pod.
fn pods(cluster: &Cluster) -> Result<()> {
    smoke::run_and_look(
        cluster,
        &smoke::Options {
            pods: PODS,
            lenient: false,
        },
        |node, traces| {
            let records = cluster.root(node)?.join("run/braid/attachments");
            // The runtime may still know sandboxes of earlier pods. They have neither a record nor
            // an address.
            let by_braid = traces
                .sandboxes
                .iter()
                .filter(|sandbox| records.join(sandbox).is_dir())
                .count();
            let pods = traces.pods;
            ensure!(
                by_braid == pods,
                "{node}: braid attached {by_braid} of {pods} pods"
            );
            println!("{node}: {pods} pods, attached by braid");
            Ok(())
        },
    )
}
