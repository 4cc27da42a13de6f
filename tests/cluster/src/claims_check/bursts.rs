//! Bursts of pods with a claim each, beside bursts of pods without.

use super::manifests::{APP, INTERFACE, config, devices, pod, share, template};
use super::objects::await_none;
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

/// Compares the times from `PodScheduled` to `Ready` of pods with and without claims: the medians of
/// alternating bursts.
pub(super) fn check(cluster: &Cluster, nodes: [Node; 2], rounds: usize) -> Result<()> {
    let ipam = json!({"type": "host-local", "subnet": "198.18.61.0/24"});
    let keys = json!({"interface": INTERFACE, "network": {"ipam": ipam}});
    let devices = devices(&[share("nic", "eth1", "10M")], &[config(&[], &keys)]);
    cluster.create(&[template(TEMPLATE, &devices)])?;
    let mut medians = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        // The kinds alternate in being first.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for kind in order {
            let templates: &[&str] = if kind == 0 { &[] } else { &[TEMPLATE] };
            let seconds = burst(cluster, nodes, templates)?;
            println!(
                "{}: {seconds:.2} s",
                ["without claims", "with a claim each"][kind]
            );
            medians[kind].push(seconds);
        }
    }
    let [plain, claimed] = medians.map(median);
    let ratio = claimed / plain;
    println!(
        "{PODS} pods Ready after {plain:.2} s without claims, {claimed:.2} s with: {ratio:.3}, at most {AT_MOST}"
    );
    ensure!(
        rounds == 0 || ratio <= AT_MOST,
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
