//! A node that restarts: its pods get new sandboxes, and the addresses of the old ones are free.

use super::pool::APP;
use crate::agent;
use crate::pods;
use anyhow::{Result, ensure};
use braid_testbed::{Cluster, Node, sh, wait};
use serde_json::Value;

/// Restarts a node, and waits until all its pods run again.
pub(super) fn restart(cluster: &Cluster, node: Node) -> Result<()> {
    let reboot = ["xtask", "cluster", "reboot", &node.to_string()];
    sh::run(&mut sh::cmd("cargo", reboot))?;
    // Node object and pods stay Ready for a while without the node.
    wait::eventually(agent::LIMIT, || agent::running(cluster, node))?;
    wait::eventually(agent::LIMIT, || {
        for pod in pods::list(cluster, APP)? {
            let (name, status) = (&pod["metadata"]["name"], &pod["status"]);
            let is_there = pod["spec"]["nodeName"] == node.to_string();
            ensure!(!is_there || has_restarted(status), "{name}: {status}");
        }
        Ok(())
    })?;
    pods::await_ready(cluster, APP)?;
    println!("{node} has restarted, and its pods run again");
    Ok(())
}

fn has_restarted(status: &Value) -> bool {
    let containers = status["containerStatuses"].as_array();
    let mut containers = containers.into_iter().flatten();
    containers.any(|container| container["restartCount"].as_u64() > Some(0))
}
