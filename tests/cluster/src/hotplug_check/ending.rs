//! End of a part of the check.

use super::manifests::APP;
use crate::leftovers::{self, Traces};
use crate::pods;
use anyhow::Result;
use braid_testbed::{Cluster, Node, wait};
use std::time::Duration;

/// Longest time until the nodes have no leftovers of deleted pods.
pub(super) const LIMIT: Duration = Duration::from_mins(2);

/// Deletes the pods of the check, and waits until the node has no leftovers.
pub(super) fn end(cluster: &Cluster, node: Node) -> Result<()> {
    let traces = Traces::of(cluster, node, APP)?;
    pods::delete(cluster, "pod", APP)?;
    wait::eventually(LIMIT, || leftovers::ensure_none(cluster, node, &traces))
}
