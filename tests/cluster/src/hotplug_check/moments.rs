//! Edits at any moment of a pod's life: the last one holds.

use super::ending::{LIMIT, end};
use super::manifests::{APP, LAN, SERVED, WAN};
use crate::pods::{self, NETWORKS, Watch};
use crate::running::{Pod, annotate_all};
use crate::{agent, leftovers};
use anyhow::{Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use serde_json::json;
use std::time::{Duration, Instant};

/// Pods that are edited while they start.
const STARTING: usize = 10;
/// Edits of one pod, and the longest time for all of them.
const MANY: usize = 20;
const MANY_WITHIN: Duration = Duration::from_secs(2);
/// Seconds for which a pod is being deleted. Its shell ignores SIGTERM.
const GRACE_S: u64 = 3;
/// Rounds of many edits.
const ROUNDS: usize = 3;

/// Edits pods before they run, when they become Ready and many times in a moment.
pub(super) fn starting(cluster: &Cluster, node: Node) -> Result<()> {
    let name = |number: usize| format!("plug-start-{number}");
    let start = Instant::now();
    let mut watch = Watch::start(cluster, APP)?;
    let mut all = Vec::new();
    for number in 0..STARTING {
        all.push(pods::requesting(&name(number), APP, node, LAN));
    }
    cluster.create(&all)?;
    // One after the other, so each is edited at another moment of its start.
    for number in 0..STARTING {
        let edit = format!("{NETWORKS}={WAN},{SERVED}");
        let words = ["annotate", "--overwrite", "pod", &name(number), &edit];
        sh::read(&mut cluster.kubectl(words))?;
        println!(
            "{} is edited after {:.2} s",
            name(number),
            start.elapsed().as_secs_f64()
        );
    }
    watch.until("became Ready", STARTING, pods::is_ready)?;
    for number in 0..STARTING {
        let pod = Pod::running(cluster, node, &name(number))?;
        pod.await_selected(&[WAN, SERVED])?;
    }
    end(cluster, node)?;
    when_ready(cluster, node)
}

/// Edits a pod as soon as the API server says that it is Ready.
fn when_ready(cluster: &Cluster, node: Node) -> Result<()> {
    let mut watch = Watch::start(cluster, APP)?;
    cluster.create(&[pods::requesting("plug-ready", APP, node, LAN)])?;
    watch.until("became Ready", 1, pods::is_ready)?;
    annotate_all(cluster, &[("plug-ready", SERVED.to_owned())])?;
    let pod = Pod::running(cluster, node, "plug-ready")?;
    pod.await_selected(&[SERVED])
}

/// Edits a pod many times within two seconds.
pub(super) fn many(cluster: &Cluster, node: Node) -> Result<()> {
    let pod = Pod::start(cluster, node, ("plug-many", APP), "")?;
    let texts = [
        LAN.to_owned(),
        format!("{WAN},{SERVED}"),
        String::new(),
        format!("{LAN}@a,{WAN}@b"),
        format!("{SERVED},{SERVED}"),
    ];
    for round in 0..ROUNDS {
        let mut edits: Vec<(&str, String)> = Vec::new();
        for number in 1..MANY {
            let text = &texts[(number + round) % texts.len()];
            edits.push((&pod.name, text.clone()));
        }
        edits.push((&pod.name, format!("{WAN}@x,{LAN}@y")));
        let start = Instant::now();
        annotate_all(cluster, &edits)?;
        let took = start.elapsed();
        ensure!(
            took < wait::on_this_machine(MANY_WITHIN),
            "{MANY} edits took {took:?}"
        );
        pod.await_networks(&[("x", WAN), ("y", LAN)])?;
        println!(
            "the last of {MANY} edits in {:.2} s holds after {:.2} s",
            took.as_secs_f64(),
            start.elapsed().as_secs_f64()
        );
        pod.edit("", &[])?;
    }
    Ok(())
}

/// Edits pods while they are deleted. Nothing may be left.
pub(super) fn deleting(cluster: &Cluster, node: Node) -> Result<()> {
    for round in 0..ROUNDS {
        let name = format!("plug-gone-{round}");
        let mut pod = pods::requesting(&name, APP, node, LAN);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(GRACE_S);
        cluster.create(&[pod])?;
        let pod = Pod::ready(cluster, node, &name)?;
        let traces = leftovers::Traces::of(cluster, node, APP)?;
        let delete = ["delete", "pod", "--wait=false", &pod.name];
        sh::read(&mut cluster.kubectl(delete))?;
        let mut edits = 0;
        // Until the pod is gone.
        while pod.annotate([WAN, SERVED, "", LAN][edits % 4]).is_ok() {
            edits += 1;
        }
        ensure!(edits > 2, "the pod went after {edits} edits");
        wait::eventually(LIMIT, || leftovers::ensure_none(cluster, node, &traces))?;
        println!("nothing is left of a pod with {edits} edits while it was deleted");
    }
    Ok(())
}

/// Edits a pod while no agent runs, and deletes another one.
pub(super) fn away(cluster: &Cluster, node: Node) -> Result<()> {
    let edited = Pod::start(cluster, node, ("plug-away", APP), &format!("{LAN},{WAN}"))?;
    let deleted = Pod::start(cluster, node, ("plug-del", APP), LAN)?;
    deleted.edit(
        &format!("{SERVED},{WAN}"),
        &[("net1", SERVED), ("net2", WAN)],
    )?;
    let before = edited.await_networks(&[("net1", LAN), ("net2", WAN)])?;
    agent::without(cluster, || {
        for networks in ["", SERVED, &format!("{WAN},{SERVED}")] {
            edited.annotate(networks)?;
        }
        sh::read(&mut cluster.kubectl(["delete", "pod", &deleted.name]))?;
        wait::eventually(LIMIT, || deleted.ensure_released())?;
        println!("DEL releases the networks of an edited pod without an agent");
        let after = edited.links()?;
        ensure!(after == before, "{after:?} without an agent");
        Ok(())
    })?;
    let start = Instant::now();
    let after = edited.await_networks(&[("net1", SERVED), ("net2", WAN)])?;
    super::matching::ensure_same(&before, &after, &["eth0", "net2"])?;
    println!(
        "the last edit while the agent was away holds {:.1} s after its start",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
