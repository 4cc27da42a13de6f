//! Check that the agents restore objects that other programs delete or change, and that they collect the
//! garbage of containers that are gone.
//!
//! ```text
//!  break something on n1 ─► as before within 10 s, event, counter ─► pods reach each other
//!  objects of other programs ─► as before, always
//! ```

mod breaks;
mod fight;
mod garbage;
mod manifests;
mod node;
mod of_pods;

use crate::agent;
use crate::leftovers::{self, Traces};
use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node, wait};
use breaks::World;
use manifests::APP;
use std::time::{Duration, Instant};

/// Longest time until the nodes have no leftovers of deleted pods.
const LIMIT: Duration = Duration::from_mins(2);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this part, by a part of its name
    #[arg(long)]
    only: Option<String>,
    /// Node on which objects are broken; the first one by default
    #[arg(long)]
    node: Option<Node>,
}

/// A part of the check: its name and its work.
type Part = (&'static str, fn(&World<'_>) -> Result<()>);

const PARTS: &[Part] = &[
    ("routes", node::routes),
    ("links", node::links),
    ("rules", node::rules),
    ("ends of pods", of_pods::ends),
    ("bridges", of_pods::bridges),
    ("parents", of_pods::parents),
    ("fight", fight::check),
    ("garbage", garbage::check),
];

pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let nodes = cluster.nodes()?;
    let node = options.node.unwrap_or(nodes[0]);
    ensure!(
        nodes.len() > 1 && nodes.contains(&node),
        "the check needs {node} and another node"
    );
    agent::ensure_deployed(cluster)?;
    manifests::delete(cluster)?; // leftovers of an earlier run
    let world = World::new(cluster, node, &nodes)?;
    for (name, work) in PARTS {
        let only = options.only.as_deref();
        if only.is_none_or(|only| name.contains(only)) {
            let start = Instant::now();
            work(&world).context(*name)?;
            println!("{name}: {:.1} s", start.elapsed().as_secs_f64());
        }
    }
    let traces = Traces::of(cluster, node, APP)?;
    pods::delete(cluster, "pod", APP)?;
    world.end()?;
    wait::eventually(LIMIT, || leftovers::ensure_none(cluster, node, &traces))?;
    manifests::delete(cluster)
}
