//! Steps that several parts of the check share.

use crate::leftovers::{self, Traces};
use crate::pods;
use anyhow::{Context, Result};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use serde_json::Value;
use std::time::{Duration, Instant};

pub(super) const APP: &str = pods::NETWORKS_CHECK;
/// Longest time until the runtimes have cleaned up after interrupted calls. The kubelet deletes
/// ended sandboxes once a minute.
pub(super) const LIMIT: Duration = Duration::from_mins(2);

/// Creates pods, waits until all are Ready, and returns the duration in seconds.
pub(super) fn create(cluster: &Cluster, pods: &[Value]) -> Result<f64> {
    let mut watch = pods::Watch::start(cluster, APP)?;
    let start = Instant::now();
    cluster.create(pods)?;
    watch.until("became Ready", pods.len(), pods::is_ready)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Deletes all pods of the check, and waits until the nodes have no leftovers.
pub(super) fn end(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let traces = traces(cluster, nodes)?;
    pods::delete(cluster, "pod", APP)?;
    await_nothing_left(cluster, &traces)
}

pub(super) fn traces(cluster: &Cluster, nodes: [Node; 2]) -> Result<Vec<(Node, Traces)>> {
    nodes
        .into_iter()
        .map(|node| Ok((node, Traces::of(cluster, node, APP)?)))
        .collect()
}

pub(super) fn await_nothing_left(cluster: &Cluster, traces: &[(Node, Traces)]) -> Result<()> {
    let start = Instant::now();
    wait::eventually(LIMIT, || {
        traces
            .iter()
            .try_for_each(|(node, traces)| leftovers::ensure_none(cluster, *node, traces))
    })?;
    let pods: usize = traces.iter().map(|(_, traces)| traces.pods).sum();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "nothing left of {pods} pods after {seconds:.1} s: {}, elements for host ports",
        leftovers::KINDS
    );
    Ok(())
}

/// Returns an object from the API server. `words` are the arguments of `kubectl get`.
pub(super) fn get(cluster: &Cluster, words: &[&str]) -> Result<Value> {
    let text = sh::read(cluster.kubectl(["get", "-o", "json"]).args(words))?;
    serde_json::from_str(&text).with_context(|| format!("parse {}", words.join(" ")))
}
