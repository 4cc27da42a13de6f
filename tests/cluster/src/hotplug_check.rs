//! Check that the networks of running pods follow their annotations.
//!
//! ```text
//!  edit of the annotation ─► interfaces of the pod (`ip`) ┐
//!                            leases of host-local         ├─ agree with the last edit
//!                            records (`braid status`)     │
//!                            `network-status`             ┘
//! ```

mod again;
mod ending;
mod in_place;
mod kills;
mod manifests;
mod matching;
mod moments;
mod whole;

use crate::agent;
use anyhow::{Context, Result, bail};
use braid_testbed::{Cluster, Node};
use ending::end;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this part, by a part of its name
    #[arg(long)]
    only: Option<String>,
    /// A few parts, no agent killed or away: one minute
    #[arg(long, conflicts_with = "only")]
    brief: bool,
}

/// A part of the check: its name and its work.
type Part = (&'static str, fn(&Cluster, Node) -> Result<()>);
/// Parts of the brief form.
const BRIEF: [&str; 3] = ["match", "many", "in place"];

const PARTS: &[Part] = &[
    ("match", matching::check),
    ("wrong", whole::check),
    ("again", again::check),
    ("starting", moments::starting),
    ("many", moments::many),
    ("deleting", moments::deleting),
    ("away", moments::away),
    ("in place", in_place::check),
    ("killed at a step", kills::at_each_step),
    ("killed after a delay", kills::after_delays),
];

pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let [node, ..] = cluster.nodes()?[..] else {
        bail!("the cluster has no node")
    };
    agent::ensure_deployed(cluster)?;
    manifests::delete(cluster)?; // leftovers of an earlier run
    cluster.create(&manifests::networks())?;
    for (name, work) in PARTS {
        let only = options.only.as_deref();
        let is_chosen = !options.brief || BRIEF.contains(name);
        if is_chosen && only.is_none_or(|only| name.contains(only)) {
            let start = Instant::now();
            work(cluster, node).context(*name)?;
            end(cluster, node).context(*name)?;
            println!("{}: {:.1} s", name, start.elapsed().as_secs_f64());
        }
    }
    manifests::delete(cluster)
}
