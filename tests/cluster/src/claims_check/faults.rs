//! Disturbances while pods with claims come and go: of the agents, the kubelets, the API server, a link and
//! a node. Each pod that starts has its interface, and nothing is left.

use super::install::await_devices;
use super::manifests::{APP, INTERFACE, config, devices, pod, share, template};
use super::objects::{await_none, await_status, delete, ready};
use crate::agent;
use crate::blows::Blow;
use crate::churn::{self, Churn, LIMIT};
use crate::leftovers::{self, Traces};
use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, LAN, Node, sh, wait};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

const TEMPLATE: &str = "churn";
/// Time for which a link has no carrier.
const UNPLUGGED: Duration = Duration::from_secs(10);
/// Ages in milliseconds of pods that are deleted by force.
const AGES: [u64; 6] = [100, 300, 500, 800, 1200, 3000];
/// Disturbances of the cluster, by a part of their names.
const BLOWS: [&str; 4] = ["killed", "restarted", "API server", "pods deleted"];

/// Makes each disturbance while pods come and go. Then removes the pods.
pub(super) fn check(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let ipam = json!({"type": "host-local", "subnet": "198.18.60.0/24"});
    let keys = json!({"interface": INTERFACE, "network": {"ipam": ipam}});
    let devices = devices(&[share("nic", "eth1", "50M")], &[config(&[], &keys)]);
    cluster.create(&[template(TEMPLATE, &devices)])?;
    let churn = Churn::new(cluster, (APP, &nodes), short_lived);
    churn.during(|is_over| strike(cluster, nodes, &churn, is_over))?;
    again(cluster, nodes)?;
    end(cluster, nodes)
}

fn short_lived(name: &str, node: Node) -> Value {
    let mut pod = pod(name, node, &[TEMPLATE]);
    let script = churn::script(&format!("eth0 {INTERFACE}"));
    pod["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", script]);
    pod
}

fn strike(
    cluster: &Cluster,
    nodes: [Node; 2],
    churn: &Churn<'_>,
    is_over: &dyn Fn() -> bool,
) -> Result<()> {
    let timed = |name: &str, work: &dyn Fn() -> Result<()>| timed(name, (churn, is_over), work);
    let is_chosen = |blow: &&Blow| BLOWS.iter().any(|part| blow.name.contains(part));
    for blow in Blow::of(&nodes).iter().filter(is_chosen) {
        timed(blow.name, &|| blow.make(cluster, &nodes))?;
    }
    timed("pods deleted by force", &|| forced(cluster, nodes[0]))?;
    timed("link without carrier", &|| unplugged(cluster, nodes[0]))?;
    timed("node restarted", &|| rebooted(cluster, nodes[1]))
}

/// Makes a disturbance, and waits until pods have come and gone after it.
fn timed(
    name: &str,
    (churn, is_over): (&Churn<'_>, &dyn Fn() -> bool),
    work: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    work().with_context(|| name.to_owned())?;
    let before = churn.count();
    wait::until("pods come and go", LIMIT, || {
        ensure!(!is_over(), "the pods have stopped coming");
        Ok(churn.count() > before)
    })
    .with_context(|| format!("after {name}"))?;
    println!(
        "{name}: pods come and go, {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Deletes pods without waiting for their kubelet, at growing ages.
fn forced(cluster: &Cluster, node: Node) -> Result<()> {
    for (number, age) in AGES.into_iter().enumerate() {
        let name = format!("forced-{number}");
        cluster.create(&[pod(&name, node, &[TEMPLATE])])?;
        thread::sleep(Duration::from_millis(age));
        let delete = ["delete", "pod", "--force", "--grace-period=0", &name];
        sh::read(&mut cluster.kubectl(delete))?;
    }
    Ok(())
}

/// Takes the carrier of a node's link for a while: the link has a taint, and pods wait.
fn unplugged(cluster: &Cluster, node: Node) -> Result<()> {
    let port = format!("s{node}");
    sh::ip(&format!("-n {LAN} link set {port} down"))?;
    thread::sleep(UNPLUGGED);
    let taints = sh::read(&mut cluster.kubectl(["get", "resourceslices", "-o", "json"]))?;
    sh::ip(&format!("-n {LAN} link set {port} up"))?;
    ensure!(taints.contains("link-down"), "no taint: {taints}");
    Ok(())
}

fn rebooted(cluster: &Cluster, node: Node) -> Result<()> {
    let reboot = ["xtask", "cluster", "reboot", &node.to_string()];
    sh::run(&mut sh::cmd("cargo", reboot))?;
    wait::eventually(LIMIT, || agent::running(cluster, node)).map(drop)
}

/// Starts a pod on each node after all disturbances: with interface, status and limit.
fn again(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    for node in nodes {
        await_devices(cluster, node, &["eth1", "eth1-whole", "eth2", "eth2-whole"])?;
        let name = format!("{APP}-again-{node}");
        cluster.create(&[pod(&name, node, &[TEMPLATE])])?;
        await_status(cluster, &ready(cluster, node, &name)?)?;
    }
    Ok(())
}

/// Deletes all pods, and waits until the nodes have no leftovers.
fn end(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let mut traces = Vec::new();
    for node in nodes {
        traces.push((node, Traces::of(cluster, node, APP)?));
    }
    delete(cluster)?;
    wait::until("the runtimes have no sandbox left", LIMIT, || {
        for node in nodes {
            if !pods::sandboxes(cluster, node, APP)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    for node in nodes {
        leftovers::delete_forgotten(cluster, node)?;
    }
    wait::eventually(LIMIT, || {
        let mut each = traces.iter();
        each.try_for_each(|(node, traces)| leftovers::ensure_none(cluster, *node, traces))
    })?;
    await_none(cluster)?;
    println!("nothing is left of the pods: {}", leftovers::KINDS);
    Ok(())
}
