//! Bursts of pods with a claim each, beside bursts of pods without, and of pods with a claim of another
//! driver each.

use super::manifests::{APP, INTERFACE, config, devices, pod, share, template};
use super::objects::await_none;
use super::peer::{self, Peer};
use crate::burst::{REST, is_at_rest};
use crate::pods::{self, Watch};
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node, wait};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const TEMPLATE: &str = "burst";
const PODS: usize = 20;
/// Largest allowed ratio between the medians with and without claims.
const AT_MOST: f64 = 1.3;
/// Kinds of bursts: a name, and the template of the claims of each pod.
const KINDS: [(&str, &[&str]); 3] = [
    ("without claims", &[]),
    ("with a claim each", &[TEMPLATE]),
    ("with a claim of the Go peer each", &[peer::TEMPLATE]),
];

/// Compares the times from `PodScheduled` to `Ready` of pods without claims, with claims, and with claims
/// of the peer: the medians of alternating bursts. The peer's is for comparison only.
pub(super) fn check(cluster: &Cluster, nodes: [Node; 2], rounds: usize) -> Result<()> {
    if rounds == 0 {
        return Ok(());
    }
    let ipam = json!({"type": "host-local", "subnet": "198.18.61.0/24"});
    let keys = json!({"interface": INTERFACE, "network": {"ipam": ipam}});
    let devices = devices(&[share("nic", "eth1", "10M")], &[config(&[], &keys)]);
    cluster.create(&[template(TEMPLATE, &devices), peer::template()])?;
    let peer = Peer::start(cluster, &nodes)?;
    let mut medians = [const { Vec::new() }; KINDS.len()];
    for round in 0..rounds {
        for turn in 0..KINDS.len() {
            // The kinds alternate in being first.
            let kind = (round + turn) % KINDS.len();
            let (name, templates) = KINDS[kind];
            let seconds = burst(cluster, nodes, templates)?;
            println!("{name}: {seconds:.2} s");
            medians[kind].push(seconds);
        }
    }
    peer.end()?;
    judge(medians.map(median))
}

/// Prints the medians and their ratios. Fails if pods with claims of braid take too long.
fn judge([plain, claimed, of_peer]: [f64; KINDS.len()]) -> Result<()> {
    let ratio = claimed / plain;
    println!(
        "{PODS} pods Ready after {plain:.2} s without claims, {claimed:.2} s with: {ratio:.3}, at most {AT_MOST}; \
         {of_peer:.2} s with claims of the Go peer: {:.3}",
        of_peer / plain
    );
    ensure!(
        ratio <= AT_MOST,
        "pods with claims take {ratio:.3} times as long as pods without"
    );
    Ok(())
}

/// Returns the median time in seconds from the scheduling of a pod until it is Ready.
fn burst(cluster: &Cluster, nodes: [Node; 2], templates: &[&str]) -> Result<f64> {
    wait::until("the machine is at rest", Duration::from_mins(3), || {
        is_at_rest(REST)
    })?;
    let mut watch = Watch::start(cluster, APP)?;
    let pod = |number: usize| {
        let name = format!("{APP}-burst-{number}");
        pod(&name, nodes[number % nodes.len()], templates)
    };
    cluster.create(&(0..PODS).map(pod).collect::<Vec<_>>())?;
    let times = times(&mut watch)?;
    pods::delete(cluster, "pod", APP)?;
    await_none(cluster)?;
    Ok(median(times))
}

/// Follows the pods by a watch. Returns the time of each from its scheduling until it is Ready.
fn times(watch: &mut Watch<'_>) -> Result<Vec<f64>> {
    let mut scheduled: BTreeMap<String, Instant> = BTreeMap::new();
    let mut ready = BTreeMap::new();
    while ready.len() < PODS {
        for event in watch.read()? {
            let name = event["object"]["metadata"]["name"].to_string();
            if is_scheduled(&event) {
                scheduled.entry(name.clone()).or_insert_with(Instant::now);
            }
            if pods::is_ready(&event) {
                let since = scheduled
                    .get(&name)
                    .context("Ready before it is scheduled")?;
                ready.entry(name).or_insert(since.elapsed().as_secs_f64());
            }
        }
    }
    Ok(ready.into_values().collect())
}

fn is_scheduled(event: &Value) -> bool {
    let conditions = event["object"]["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "PodScheduled" && condition["status"] == "True")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
