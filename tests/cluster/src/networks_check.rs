//! The check that pods get the networks of their annotations, from the annotation to nothing left.
//!
//! ```text
//!              eth0 default network (bridge), by the configuration that the node had
//!   pod n1 ────net1 lan     macvlan on the nodes' eth1 ──── pods of n2
//!              net2 served  bridge of the node, a limit, host port 20000 + the pod's number
//! ```
//!
//! Networks of other types are in `types.rs`, addresses of a DHCP server in `dhcp.rs`.

pub(crate) mod attached;
mod dhcp;
mod kills;
mod manifests;
mod rights;
mod times;
mod traffic;
mod types;

use crate::hostport_check::await_kube_proxy;
use crate::leftovers::{self, Traces};
use crate::pods;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};
use xtask::cluster::{Cluster, Node, deploy, wait};
use xtask::sh;

const APP: &str = pods::NETWORKS;
/// Pods that are attached by the reference plugins' names, before the nodes know of other networks.
const EARLIER: u16 = 4;
/// Pods at once in the brief form.
const FEW: u16 = 8;
/// Longest time until the runtimes have forgotten what a call that was cut short left. The kubelet collects once a minute.
const LIMIT: Duration = Duration::from_mins(2);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of pods that are created at once
    #[arg(long, default_value_t = 40)]
    pods: u16,
    /// Rounds in which the time until pods are Ready is compared with that of pods without further networks
    #[arg(long, default_value_t = 4)]
    rounds: usize,
    /// A few pods at once, no service killed, no times compared: one minute
    #[arg(long, conflicts_with_all = ["pods", "rounds"])]
    brief: bool,
    /// The networks of other types alone, as where only those depend on the kernel
    #[arg(long, conflicts_with_all = ["pods", "rounds", "brief"])]
    types: bool,
}

/// Has the nodes attach pods to networks, and shows all that this is for.
pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let [node, other, ..] = cluster.nodes()?[..] else { bail!("the cluster has one node, and this needs two") };
    let nodes = [node, other];
    for node in nodes {
        await_kube_proxy(cluster, node)?;
        ensure!(deploy::has_braid(cluster, node)?, "{node} has no braid: `cargo xtask cluster deploy` brings it");
    }
    pods::delete(cluster, "pod", APP)?; // what an earlier run left to look at
    manifests::delete(cluster)?;
    if options.types {
        deploy::attach_networks(cluster)?;
        types::check(cluster, nodes, false)?;
        return manifests::delete(cluster);
    }
    create(cluster, &manifests::plain(EARLIER, nodes))?;
    deploy::attach_networks(cluster)?;
    cluster.create(&manifests::networks(nodes))?;
    end(cluster, nodes).context("of pods that were there before")?;

    traffic::check(cluster, nodes)?;
    types::check(cluster, nodes, options.brief)?;
    let count = if options.brief { FEW } else { options.pods };
    at_once(cluster, nodes, count)?;
    if !options.brief {
        dhcp::check(cluster, nodes)?;
        kills::check(cluster, nodes, count)?;
        times::check(cluster, nodes, count, options.rounds)?;
    }
    rights::check(cluster, node)?;
    manifests::delete(cluster)
}

/// Many pods, whose statuses say what they have.
fn at_once(cluster: &Cluster, nodes: [Node; 2], count: u16) -> Result<()> {
    let seconds = create(cluster, &manifests::attached(count, nodes))?;
    println!("{count} pods with three networks Ready after {seconds:.1} s");
    attached::check(cluster, (APP, nodes), manifests::names)?;
    end(cluster, nodes)
}

/// Creates pods and waits until all are Ready; the seconds that it took.
fn create(cluster: &Cluster, pods: &[Value]) -> Result<f64> {
    let mut watch = pods::Watch::start(cluster, APP)?;
    let start = Instant::now();
    cluster.create(pods)?;
    watch.until("became Ready", pods.len(), pods::is_ready)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Deletes all pods of the check, and waits until nothing is left of them.
fn end(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let traces = traces(cluster, nodes)?;
    pods::delete(cluster, "pod", APP)?;
    await_nothing_left(cluster, &traces)
}

fn traces(cluster: &Cluster, nodes: [Node; 2]) -> Result<Vec<(Node, Traces)>> {
    nodes.into_iter().map(|node| Ok((node, Traces::of(cluster, node, APP)?))).collect()
}

fn await_nothing_left(cluster: &Cluster, traces: &[(Node, Traces)]) -> Result<()> {
    let start = Instant::now();
    wait::eventually(LIMIT, || {
        traces.iter().try_for_each(|(node, traces)| leftovers::ensure_none(cluster, *node, traces))
    })?;
    let pods: usize = traces.iter().map(|(_, traces)| traces.pods).sum();
    let seconds = start.elapsed().as_secs_f64();
    println!("nothing left of {pods} pods after {seconds:.1} s: {}, elements for host ports", leftovers::KINDS);
    Ok(())
}

/// An object of the API server.
fn get(cluster: &Cluster, words: &[&str]) -> Result<Value> {
    let text = sh::read(cluster.kubectl(["get", "-o", "json"]).args(words))?;
    serde_json::from_str(&text).with_context(|| format!("parse {}", words.join(" ")))
}
