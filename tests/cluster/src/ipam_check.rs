//! Check of cluster-wide addresses: pods on two nodes share a range of a macvlan network, and reach
//! each other, also after one node has restarted. Addresses of a `StatefulSet` and of an IPAMClaim move
//! with their pods.
//!
//! ```text
//!   pods of n1 ── net1 ─┐
//!                       ├─ macvlan on the nodes' eth1, 198.18.40.0/24, IPPool 198.18.40.0-24
//!   pods of n2 ── net1 ─┘
//! ```

mod kept;
mod pool;
mod reboot;

use crate::agent;
use crate::networks_check::attached;
use crate::pods;
use anyhow::{Result, bail, ensure};
use braid_testbed::{Cluster, Node, sh, wait};
use pool::{APP, IDLE, NETWORK, PAYMENT, Pods, RANGE, addresses, of_containers, pool};
use serde_json::{Value, json};
use std::time::Instant;

/// Number of pods if `--brief` is set.
const FEW: usize = 8;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of pods, created at the same time
    #[arg(long, default_value_t = 40)]
    pods: usize,
    /// A few pods, no node restarted, and no wait for held addresses
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
    // What an earlier run left to look at.
    pods::delete(cluster, "statefulset,pod,ipamclaim,net-attach-def", APP)?;
    let manifest = sh::root().join("deploy/ipam.yaml");
    sh::run(&mut cluster.kubectl(["apply", "-f", &manifest.to_string_lossy()]))?;
    cluster.create(&[network()])?;
    let count = if options.brief { FEW } else { options.pods };
    let start = Instant::now();
    cluster.create(&requesting(count, nodes))?;
    pods::await_ready(cluster, APP)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{count} pods with a cluster-wide address Ready after {seconds:.1} s");
    compare(cluster)?;
    if !options.brief {
        reboot::restart(cluster, other)?;
        compare(cluster)?;
    }
    pods::delete(cluster, "pod", APP)?;
    wait::eventually(PAYMENT, || {
        let left = of_containers(cluster)?;
        ensure!(left.is_empty(), "entries of pods that are gone: {left:?}");
        Ok(())
    })?;
    println!("the pool has no entry of the {count} deleted pods");
    kept::check(cluster, nodes)?;
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

/// Waits until the pool's entries are the pods' addresses. Then lets each pod reach all others.
fn compare(cluster: &Cluster) -> Result<()> {
    let pods = addresses(cluster)?;
    let mut expected: Vec<String> = pods.values().map(|(_, address)| address.clone()).collect();
    expected.sort_unstable();
    wait::eventually(PAYMENT, || {
        let found = of_containers(cluster)?;
        ensure!(found == expected, "pool: {found:?}; pods: {expected:?}");
        Ok(())
    })?;
    println!("the pool's entries are the pods'");
    reach(cluster, &pods)
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
