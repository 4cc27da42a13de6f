//! Check that pods that come and go leave nothing behind, and cost the agents no memory.
//!
//! ```text
//!  rounds    four pods, every other with a network, one edit each ─► compared ─► deleted
//!  sampler   addresses of all network namespaces; memory of the agents
//!  end       no sandbox failed; leases and attachments are those of the pods; budgets
//! ```

mod manifests;
mod usage;

use crate::leftovers::{self, Traces};
use crate::networks_check::attached;
use crate::pods;
use crate::running::attachments;
use crate::{addresses, agent};
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use manifests::APP;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use usage::Usage;

/// Longest time until the networks of a pod follow its edit, and until the nodes have no leftovers.
const LIMIT: Duration = Duration::from_mins(2);
/// Longest time until the metrics are those of the pods. They are read anew after 5 seconds.
const METRICS: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_secs(1);
/// Number of pods after which the series are checked.
const GONE: usize = 30;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Duration in minutes
    #[arg(long, default_value_t = 10)]
    minutes: u64,
}

pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let [node, other, ..] = cluster.nodes()?[..] else {
        bail!("the cluster has one node, and this check needs two")
    };
    let nodes = [node, other];
    agent::ensure_deployed(cluster)?;
    manifests::delete(cluster)?; // leftovers of an earlier run
    cluster.create(&manifests::networks())?;
    let mut usage = Usage::start(cluster, nodes)?;
    let end = Instant::now() + Duration::from_mins(options.minutes);
    let (is_over, samples) = (AtomicBool::new(false), AtomicUsize::new(0));
    let pods = thread::scope(|threads| {
        let sampling = threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                addresses::ensure_none_twice(cluster, &nodes)?;
                samples.fetch_add(1, Ordering::Relaxed);
                usage.sample()?;
                thread::sleep(PAUSE);
            }
            Ok(())
        });
        let pods = rounds(cluster, nodes, end);
        is_over.store(true, Ordering::Relaxed);
        let sampled: Result<()> = match sampling.join() {
            Ok(sampled) => sampled,
            Err(_) => bail!("a thread of the check panicked"),
        };
        pods.and_then(|pods| sampled.map(|()| pods))
    })?;
    let samples = samples.load(Ordering::Relaxed);
    println!("{pods} pods came and went; no address twice in {samples} samples");
    ensure_no_failure(cluster)?;
    usage.ensure_within_budget(pods)?;
    if pods >= GONE {
        without_series(cluster, nodes)?;
    }
    manifests::delete(cluster)
}

/// Creates, edits and deletes pods until `end`. Returns their number.
fn rounds(cluster: &Cluster, nodes: [Node; 2], end: Instant) -> Result<usize> {
    let mut pods = 0;
    while pods == 0 || Instant::now() < end {
        round(cluster, nodes, pods).with_context(|| format!("after {pods} pods"))?;
        pods += manifests::AT_A_TIME;
    }
    Ok(pods)
}

fn round(cluster: &Cluster, nodes: [Node; 2], first: usize) -> Result<()> {
    let all = manifests::pods(first, nodes);
    let mut watch = pods::Watch::start(cluster, APP)?;
    cluster.create(&all)?;
    watch.until("became Ready", all.len(), pods::is_ready)?;
    for pod in &all {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let words = ["annotate", "--overwrite", "pod", name];
        let edit = manifests::edited(pod);
        sh::read(cluster.kubectl(words).arg(edit))?;
    }
    wait::eventually(LIMIT, || agree(cluster, nodes))?;
    let mut traces = Vec::new();
    for node in nodes {
        traces.push((node, Traces::of(cluster, node, APP)?));
    }
    pods::delete(cluster, "pod", APP)?;
    wait::eventually(LIMIT, || {
        let mut all = traces.iter();
        all.try_for_each(|(node, traces)| leftovers::ensure_none(cluster, *node, traces))
    })
}

/// Fails unless the pods have the networks of their annotations, and leases and attachments are
/// theirs alone.
fn agree(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let pods = pods::list(cluster, APP)?;
    for node in nodes {
        let mut expected = 0;
        for pod in &pods {
            if pod["spec"]["nodeName"] != node.to_string() {
                continue;
            }
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let networks = manifests::interfaces(pod);
            let links = attached::in_pod(cluster, node, name, &["ip", "-j", "link"])?;
            let found = links.as_array().map_or(0, Vec::len);
            // `lo` is one of them.
            ensure!(
                found == networks + 1,
                "{name}: {found} links for {networks} networks"
            );
            let status = pods::network_status(pod).len();
            ensure!(status == networks, "{name}: status of {status} networks");
            expected += networks;
        }
        let attachments = attachments(cluster, node)?.len();
        ensure!(
            attachments == expected,
            "{node}: {attachments} attachments for {expected} networks"
        );
        let leases = leases(cluster, node)?;
        ensure!(
            leases == expected,
            "{node}: {leases} leases for {expected} networks"
        );
    }
    Ok(())
}

/// Returns the number of IPv4 leases on a node.
fn leases(cluster: &Cluster, node: Node) -> Result<usize> {
    let find = [
        "find",
        "/var/lib/cni/networks",
        "-type",
        "f",
        "-name",
        "*.*.*.*",
    ];
    let found = sh::read(&mut cluster.on(node, find)?)?;
    Ok(found.lines().filter(|line| !line.contains("last_")).count())
}

/// Fails if a sandbox of the check's pods could not be created.
fn ensure_no_failure(cluster: &Cluster) -> Result<()> {
    let of = "--field-selector=reason=FailedCreatePodSandBox";
    let list = sh::read(&mut cluster.kubectl(["get", "events", "-o", "json", of]))?;
    let list: Value = serde_json::from_str(&list).context("parse the list of events")?;
    let mut failures = Vec::new();
    for event in list["items"].as_array().into_iter().flatten() {
        let pod = event["involvedObject"]["name"].as_str().unwrap_or_default();
        if pod.starts_with(APP) {
            failures.push(format!("{pod}: {}", event["message"]));
        }
    }
    ensure!(
        failures.is_empty(),
        "failed sandboxes:\n{}",
        failures.join("\n")
    );
    println!("no sandbox failed");
    Ok(())
}

/// Fails unless the metrics have series of a pod while it is there, and none of pods that are gone.
fn without_series(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let all = manifests::pods(0, nodes);
    cluster.create(&all)?;
    pods::await_ready(cluster, APP)?;
    let series = || -> Result<usize> {
        let mut series = 0;
        for node in nodes {
            let metrics = agent::metrics(cluster, node)?;
            let of_pod = format!("pod=\"{APP}-");
            series += metrics
                .lines()
                .filter(|line| line.contains(&of_pod))
                .count();
        }
        Ok(series)
    };
    wait::until("the metrics have series of limited pods", METRICS, || {
        Ok(series()? > 0)
    })?;
    let present = series()?;
    pods::delete(cluster, "pod", APP)?;
    wait::until("the series of pods go with them", METRICS, || {
        Ok(series()? == 0)
    })?;
    println!("{present} series of limited pods, and none after their deletion");
    Ok(())
}
