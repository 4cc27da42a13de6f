//! Check that traffic and new pods survive disturbances of the agent, the API server, the runtime
//! and a node.
//!
//! ```text
//!   watcher n1 ── ping, TCP ── server n2      never interrupted
//!   churn      pods of every node with two networks, created and deleted all the time
//!   sampler    addresses of all network namespaces, once a second
//!   blows      one after the other, each with a ping of its own
//! ```

mod manifests;

use crate::blows::Blow;
use crate::churn::Churn;
use crate::flows::{End, Ping, Stream};
use crate::leftovers::{self, Traces};
use crate::pods;
use anyhow::{Result, bail, ensure};
use braid_testbed::{Cluster, Node, deploy, wait};
use std::time::{Duration, Instant};

const APP: &str = pods::CHAOS;
/// Longest time until the runtimes have cleaned up. The kubelet deletes ended sandboxes once a
/// minute.
const LIMIT: Duration = Duration::from_mins(3);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this disturbance, by a part of its name
    #[arg(long)]
    only: Option<String>,
}

pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let nodes = cluster.nodes()?;
    let [client, server, ..] = nodes[..] else {
        bail!("the cluster has one node, and this check needs two")
    };
    for node in &nodes {
        ensure!(
            deploy::has_braid(cluster, *node)?,
            "{node} has no braid: `cargo xtask cluster deploy` installs it"
        );
    }
    manifests::delete(cluster)?; // what an earlier run left to look at
    cluster.create(&manifests::networks(&nodes))?;
    let [client, server] = ends(client, server);
    cluster.create(&[client, server].map(End::pod))?;
    pods::await_ready(cluster, APP)?;
    let mut stream = Stream::start(cluster, client, server)?;
    let churn = Churn::new(cluster, (APP, &nodes), manifests::short_lived);
    churn.during(|_| strike(cluster, &nodes, options, &mut stream))?;
    end(cluster, &nodes)
}

fn ends(client: Node, server: Node) -> [End; 2] {
    [client, server].map(|node| End { app: APP, node })
}

/// Makes each disturbance, with a ping across it. Fails if a packet is lost or the stream breaks.
fn strike(cluster: &Cluster, nodes: &[Node], options: &Options, stream: &mut Stream) -> Result<()> {
    let [client, server, ..] = nodes[..] else {
        bail!("the cluster has one node")
    };
    let blows = Blow::of(nodes);
    let is_chosen = |blow: &&Blow| {
        let only = options.only.as_deref();
        only.is_none_or(|only| blow.name.contains(only))
    };
    for blow in blows.iter().filter(is_chosen) {
        let start = Instant::now();
        let [client, server] = ends(client, server);
        let ping = Ping::start(cluster, client, server)?;
        let made = blow.make(cluster, nodes);
        let count = ping.end()?;
        stream.ensure_alive()?;
        made?;
        println!(
            "{}: no packet of {count} lost, no connection broken, {:.1} s",
            blow.name,
            start.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// Deletes all pods of the check, and waits until the nodes have no leftovers.
fn end(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    let mut traces = Vec::new();
    for node in nodes {
        traces.push((*node, Traces::of(cluster, *node, APP)?));
    }
    pods::delete(cluster, "pod", APP)?;
    wait::until("the runtimes have no sandbox left", LIMIT, || {
        for node in nodes {
            if !pods::sandboxes(cluster, *node, APP)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    for node in nodes {
        leftovers::delete_forgotten(cluster, *node)?;
    }
    wait::eventually(LIMIT, || {
        traces
            .iter()
            .try_for_each(|(node, traces)| leftovers::ensure_none(cluster, *node, traces))
    })?;
    println!(
        "nothing left on {} nodes: {}",
        nodes.len(),
        leftovers::KINDS
    );
    manifests::delete(cluster)
}
