//! From the reference plugins to braid under their names, without Kubernetes, and back.

use crate::pods::MOVE as APP;
use crate::rounds::Rounds;
use crate::runbook::Runbook;
use anyhow::Result;
use braid_testbed::{Cluster, Node, deploy};

const HEADING: &str = "Reference plugins";

pub(super) fn run(cluster: &Cluster, runbook: &Runbook<'_>, nodes: [Node; 2]) -> Result<()> {
    deploy::prepare(cluster)?;
    let mut rounds = Rounds::start(cluster, APP, |_| None)?;
    rounds.check("all nodes have the reference plugins", &[])?;
    for (at, node) in nodes.iter().enumerate() {
        runbook.unpack(*node)?;
        runbook.run_on(*node, (HEADING, 0))?;
        rounds.check(&format!("{node} has braid"), &nodes[..=at])?;
    }
    for (at, node) in nodes.iter().enumerate() {
        runbook.run_on(*node, (HEADING, 1))?;
        deploy::ensure_restored(cluster, *node)?;
        // Pods that braid attached.
        let drained = rounds.drain(*node)?;
        runbook.run_on(*node, (HEADING, 2))?;
        rounds.await_none(*node, &drained)?;
        let state = format!("{node} has the reference plugins again");
        rounds.check(&state, &nodes[at + 1..])?;
    }
    rounds.end()
}
