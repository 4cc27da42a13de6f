//! Check of cluster-wide addresses: pods on two nodes share a range of a macvlan network, and reach
//! each other.
//!
//! ```text
//!   pods of n1 ── net1 ─┐
//!                       ├─ macvlan on the nodes' eth1, 198.18.40.0/24, IPPool 198.18.40.0-24
//!   pods of n2 ── net1 ─┘
//! ```

use crate::agent;
use crate::networks_check::attached;
use crate::pods;
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::{Cluster, Node, sh, wait};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const APP: &str = pods::IPAM;
const NETWORK: &str = "ipam-lan";
const RANGE: &str = "198.18.40.0/24";
const POOL: &str = "198.18.40.0-24";
/// Number of pods if `--brief` is set.
const FEW: usize = 8;
/// Longest wait for the entries of pods that are gone.
const PAYMENT: Duration = Duration::from_secs(20);
/// Longest wait for held addresses: a node gives them back after a minute.
const IDLE: Duration = Duration::from_secs(100);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of pods, created at the same time
    #[arg(long, default_value_t = 40)]
    pods: usize,
    /// A few pods, and no wait for held addresses
    #[arg(long, conflicts_with = "pods")]
    brief: bool,
}

/// Attaches pods, compares their addresses with the pool, lets each reach all others, and removes
/// them.
pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let [node, other, ..] = cluster.nodes()?[..] else {
        bail!("the cluster has one node, and this check needs two")
    };
    let nodes = [node, other];
    agent::ensure_deployed(cluster)?;
    pods::delete(cluster, "pod,net-attach-def", APP)?; // what an earlier run left to look at
    let manifest = sh::root().join("deploy/ipam.yaml");
    sh::run(&mut cluster.kubectl(["apply", "-f", &manifest.to_string_lossy()]))?;
    cluster.create(&[network()])?;
    let count = if options.brief { FEW } else { options.pods };
    let start = Instant::now();
    cluster.create(&requesting(count, nodes))?;
    pods::await_ready(cluster, APP)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{count} pods with a cluster-wide address Ready after {seconds:.1} s");
    let addresses = addresses(cluster)?;
    compare(cluster, &addresses)?;
    reach(cluster, &addresses)?;
    pods::delete(cluster, "pod", APP)?;
    wait::eventually(PAYMENT, || {
        let left = of_containers(cluster)?;
        ensure!(left.is_empty(), "entries of pods that are gone: {left:?}");
        Ok(())
    })?;
    println!("the pool has no entry of the {count} deleted pods");
    if !options.brief {
        wait::eventually(IDLE, || {
            let pool = pool(cluster)?;
            let left = pool["spec"]["allocations"].to_string();
            ensure!(left == "{}", "held addresses: {left}");
            Ok(())
        })?;
        println!("the nodes have given back the addresses that they held");
    }
    pods::delete(cluster, "net-attach-def", APP)
}

/// A pod: its node, and its address in the network.
type Pods = BTreeMap<String, (Node, String)>;

fn network() -> Value {
    let ipam = json!({"type": "whereabouts", "range": RANGE});
    let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "ipam": ipam});
    pods::network(NETWORK, APP, &config)
}

fn requesting(count: usize, nodes: [Node; 2]) -> Vec<Value> {
    let pod = |number: usize| {
        let name = format!("{APP}-{number}");
        pods::requesting(&name, APP, nodes[number % nodes.len()], NETWORK)
    };
    (0..count).map(pod).collect()
}

/// Returns the address of each pod. Fails if two have the same.
fn addresses(cluster: &Cluster) -> Result<Pods> {
    let nodes = cluster.nodes()?;
    let (mut all, mut owners) = (Pods::new(), BTreeMap::new());
    for pod in pods::list(cluster, APP)? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let status = pods::network_status(&pod);
        let entry = status.get(1).and_then(|entry| entry["ips"][0].as_str());
        let address = entry.with_context(|| format!("{name} has no address"))?;
        let other = owners.insert(address.to_owned(), name.to_owned());
        ensure!(other.is_none(), "{address} of {name} and {other:?}");
        let node = nodes
            .iter()
            .find(|node| pod["spec"]["nodeName"] == node.to_string());
        let node = node.with_context(|| format!("{name} is on no node"))?;
        all.insert(name.to_owned(), (*node, address.to_owned()));
    }
    println!("{} addresses, none twice", owners.len());
    Ok(all)
}

fn pool(cluster: &Cluster) -> Result<Value> {
    let get = ["get", "ippools", POOL, "-n", "kube-system", "-o", "json"];
    let text = sh::read(&mut cluster.kubectl(get))?;
    serde_json::from_str(&text).context("parse the pool")
}

/// Returns the addresses that the pool has for containers.
fn of_containers(cluster: &Cluster) -> Result<Vec<String>> {
    let pool = pool(cluster)?;
    let entries = pool["spec"]["allocations"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let entries = entries.iter().filter(|(_, entry)| {
        let id = entry["id"].as_str().unwrap_or_default();
        !id.starts_with("braid:")
    });
    let mut addresses: Vec<String> = entries.map(|(at, _)| format!("198.18.40.{at}")).collect();
    addresses.sort_unstable();
    Ok(addresses)
}

/// Waits until the pool's entries are the pods' addresses.
fn compare(cluster: &Cluster, pods: &Pods) -> Result<()> {
    let mut expected: Vec<String> = pods.values().map(|(_, address)| address.clone()).collect();
    expected.sort_unstable();
    wait::eventually(PAYMENT, || {
        let found = of_containers(cluster)?;
        ensure!(found == expected, "pool: {found:?}; pods: {expected:?}");
        Ok(())
    })?;
    println!("the pool's entries are the pods'");
    Ok(())
}

/// Sends a packet from each pod to all others, or up to three: the nodes of the cluster share one
/// kernel, whose table of neighbours is too small for all of them at once.
fn reach(cluster: &Cluster, pods: &Pods) -> Result<()> {
    let all: Vec<&str> = pods.values().map(|(_, address)| address.as_str()).collect();
    for (name, (node, own)) in pods {
        let others: Vec<&str> = all.iter().copied().filter(|it| it != own).collect();
        let script = format!(
            "ask() {{ ping -q -c 1 -W 3 -I net1 $1 >/dev/null; }}; \
             for ip in {}; do ask $ip || ask $ip || {{ sleep 1; ask $ip; }} || echo $ip; done; \
             ip neigh flush dev net1",
            others.join(" ")
        );
        let missing = sh::read(&mut attached::command(
            cluster,
            *node,
            name,
            &["sh", "-c", &script],
        )?)?;
        ensure!(missing.trim().is_empty(), "{name} does not reach {missing}");
    }
    println!("each pod reaches all others");
    Ok(())
}
