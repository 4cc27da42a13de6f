//! Check of resource claims: the scheduler places pods where a link of a node has the claimed bandwidth
//! left, braid attaches them there, and limits each to its claim.
//!
//! ```text
//!  n1, n2: eth1, eth2 (1G each by `dra.capacity`) ─► ResourceSlices ─► scheduler ─► pods with macvlan
//! ```

mod bursts;
mod faults;
mod install;
mod manifests;
mod objects;
mod peer;
mod placement;
mod rates;
mod refusals;
mod rights;

use crate::agent;
use anyhow::{Result, bail};
use braid_testbed::{Cluster, Node};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seconds for which each direction is measured; 0: no rates are measured
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Bursts of pods with claims, as many with claims of another driver, and as many without
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Placement, rates and refusals alone: no bursts and no disturbances
    #[arg(long, conflicts_with = "rounds")]
    brief: bool,
}

/// Enables claims, checks them, and disables them.
pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let [node, other, ..] = cluster.nodes()?[..] else {
        bail!("the cluster has one node, and this check needs two")
    };
    let nodes = [node, other];
    agent::ensure_deployed(cluster)?;
    objects::delete(cluster)?; // what an earlier run left to look at
    install::enable(cluster, nodes)?;
    // A failed check leaves its objects to look at.
    check(cluster, nodes, options)?;
    objects::delete(cluster)?;
    install::disable(cluster)?;
    rights::check(cluster, options.brief)?;
    install::remove(cluster)
}

fn check(cluster: &Cluster, nodes: [Node; 2], options: &Options) -> Result<()> {
    placement::shares(cluster, nodes, || {
        rates::check(cluster, nodes[0], options.seconds)
    })?;
    placement::whole(cluster, nodes[0])?;
    placement::two_links(cluster, nodes[0])?;
    placement::alternatives(cluster, nodes[0])?;
    placement::two_containers(cluster, nodes[0])?;
    refusals::check(cluster, nodes[0])?;
    if options.brief {
        return Ok(());
    }
    bursts::check(cluster, nodes, options.rounds)?;
    faults::check(cluster, nodes)
}
