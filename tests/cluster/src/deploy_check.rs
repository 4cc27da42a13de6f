//! Check that deploy/braid.yaml installs braid on nodes without it, and that deploy/remove.yaml
//! removes it.

use crate::smoke;
use anyhow::{Result, ensure};
use braid_testbed::{Cluster, deploy};

/// Number of pods: a few on each node.
const PODS: u32 = 6;

/// Installs braid on the nodes, runs pods with it, and removes it.
pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes()? {
        let has_braid = deploy::has_braid(cluster, node)?;
        ensure!(
            !has_braid,
            "{node} has braid already, so its installation cannot be checked"
        );
    }
    let checked = deploy::bring(cluster).and_then(|()| pods(cluster));
    // This restores the cluster even after a failed check. The error of the check takes precedence.
    let taken_off = deploy::take_off(cluster);
    checked.and(taken_off)
}

/// Checks that pods get their network from braid, and that braid keeps a record of each pod.
fn pods(cluster: &Cluster) -> Result<()> {
    smoke::run_and_look(
        cluster,
        &smoke::Options {
            pods: PODS,
            lenient: false,
        },
        |node, traces| {
            let records = cluster.root(node)?.join("run/braid/attachments");
            // The runtime may still know sandboxes of earlier pods. They have neither a record nor
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
