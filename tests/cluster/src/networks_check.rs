//! Check that pods get the networks of their annotations, and that they leave nothing behind.
//!
//! ```text
//!              eth0 default network
//!   pod n1 ────net1 lan     macvlan on the nodes' eth1 ──── pods of n2
//!              net2 served  bridge of the node, a limit, host port 20000 + the pod's number
//! ```
//!
//! Networks of other types are in `types.rs`, and addresses from a DHCP server in `dhcp.rs`.

pub(crate) mod attached;
mod dhcp;
mod kills;
mod manifests;
mod rights;
mod steps;
mod times;
mod traffic;
mod types;

use crate::hostport_check::await_kube_proxy;
use crate::pods;
use anyhow::{Result, bail, ensure};
use braid_testbed::{Cluster, Node, deploy};
use steps::{APP, LIMIT, await_nothing_left, create, end, get, traces};

/// Number of pods if `--brief` is set.
const FEW: u16 = 8;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of pods, created at the same time
    #[arg(long, default_value_t = 40)]
    pods: u16,
    /// Rounds that compare the time until pods are Ready with and without requested networks
    #[arg(long, default_value_t = 4)]
    rounds: usize,
    /// A few pods, no service killed, no times compared: one minute
    #[arg(long, conflicts_with_all = ["pods", "rounds"])]
    brief: bool,
    /// Check only networks of types other than bridge and macvlan, for a run on another kernel
    #[arg(long, conflicts_with_all = ["pods", "rounds", "brief"])]
    types: bool,
}

/// Runs all parts of the check.
pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let [node, other, ..] = cluster.nodes()?[..] else {
        bail!("the cluster has one node, and this check needs two")
    };
    let nodes = [node, other];
    for node in nodes {
        await_kube_proxy(cluster, node)?;
        ensure!(
            deploy::has_braid(cluster, node)?,
            "{node} has no braid: `cargo xtask cluster deploy` installs it"
        );
    }
    pods::delete(cluster, "pod", APP)?; // what an earlier run left to look at
    manifests::delete(cluster)?;
    if options.types {
        types::check(cluster, nodes, false)?;
        return manifests::delete(cluster);
    }
    cluster.create(&manifests::networks(nodes))?;
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

/// Creates `count` pods at the same time, and compares their statuses with their interfaces.
fn at_once(cluster: &Cluster, nodes: [Node; 2], count: u16) -> Result<()> {
    let seconds = create(cluster, &manifests::attached(count, nodes))?;
    println!("{count} pods with three networks Ready after {seconds:.1} s");
    attached::check(cluster, (APP, nodes), manifests::names)?;
    end(cluster, nodes)
}
