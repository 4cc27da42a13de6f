//! Running pods whose annotation changes.

use super::attached;
use super::manifests::{self, NETWORKS};
use super::steps::{APP, LIMIT, create, end};
use anyhow::Result;
use braid_testbed::{Cluster, Node, sh, wait};
use serde_json::Value;
use std::time::Instant;

/// Gives `count` running pods networks, takes them away and gives them again. Deletes the pods, which leave
/// nothing behind.
pub(super) fn check(cluster: &Cluster, nodes: [Node; 2], count: u16) -> Result<()> {
    create(cluster, &manifests::plain(count, nodes))?;
    for round in ["come", "go", "come again"] {
        let has_networks = round != "go";
        for pod in manifests::attached(count, nodes) {
            annotate(cluster, &pod, has_networks)?;
        }
        let annotated = Instant::now();
        wait::eventually(LIMIT, || {
            let names = |node| {
                let names = manifests::names(node);
                if has_networks {
                    names
                } else {
                    names[..1].to_vec()
                }
            };
            attached::check(cluster, (APP, nodes), names)
        })?;
        println!(
            "networks of {count} running pods {round} within {:.1} s after the last of {count} edits",
            annotated.elapsed().as_secs_f64()
        );
    }
    end(cluster, nodes)
}

/// Gives a running pod the annotation of the same pod in a manifest, or an empty one.
fn annotate(cluster: &Cluster, pod: &Value, has_networks: bool) -> Result<()> {
    let metadata = &pod["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let networks = &metadata["annotations"][NETWORKS];
    let networks = networks.as_str().filter(|_| has_networks);
    let annotation = format!("{NETWORKS}={}", networks.unwrap_or_default());
    sh::run(&mut cluster.kubectl(["annotate", "--overwrite", "pod", name, &annotation]))
}
