//! The check that deploy/braid.yaml brings braid to nodes that have none, and that
//! deploy/remove.yaml removes it.

use crate::smoke;
use anyhow::{Result, ensure};
use braid_testbed::{Cluster, deploy};

/// Some on each node.
const PODS: u32 = 6;

/// Brings braid to the nodes, lets pods run with it, and takes it off again.
pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes()? {
        let has_braid = deploy::has_braid(cluster, node)?;
        ensure!(
            !has_braid,
            "{node} has braid already, so that it is brought could not be seen"
        );
    }
    let checked = deploy::bring(cluster).and_then(|()| pods(cluster));
    // Also after a failure, which is the one to be told: the cluster is to be as it was.
    let taken_off = deploy::take_off(cluster);
    checked.and(taken_off)
}

/// Pods get their network, and it is braid's: it keeps a record of each.
fn pods(cluster: &Cluster) -> Result<()> {
    smoke::run_and_look(
        cluster,
        &smoke::Options {
            pods: PODS,
            lenient: false,
        },
        |node, traces| {
            let records = cluster.root(node)?.join("run/braid/attachments");
            // The runtime may still know sandboxes of earlier pods; those have neither a record nor
            // an address.
            let by_braid = traces
                .sandboxes
                .iter()
                .filter(|sandbox| records.join(sandbox).is_dir())
                .count();
            let pods = traces.pods;
            ensure!(
                by_braid == pods,
                "{node}: braid attached {by_braid} of {pods} pods"
            );
            println!("{node}: {pods} pods, attached by braid");
            Ok(())
        },
    )
}
