//! Check that the chart makes a cluster of machines without any network for pods, and that the
//! steps in its notes leave nothing of it but the kinds of objects.

use crate::smoke;
use anyhow::{Result, ensure};
use braid_testbed::chart::{self, CHART, RELEASE};
use braid_testbed::{Cluster, deploy, sh, wait};
use std::time::Instant;

/// Number of pods: a few on each node.
const PODS: u32 = 6;
const NAMESPACE: &str = "--namespace=kube-system";
/// Selects the objects of the chart.
const OBJECTS: &str = "app.kubernetes.io/name=braid";
/// Kinds of these objects.
const KINDS: &str = "daemonsets,pods,serviceaccounts,configmaps,roles,rolebindings,clusterroles,clusterrolebindings,\
                     validatingadmissionpolicies,validatingadmissionpolicybindings";

/// Installs the chart, runs pods, and uninstalls it.
pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes()? {
        let has_braid = deploy::has_braid(cluster, node)?;
        ensure!(
            !has_braid,
            "{node} has braid already, so the chart cannot be checked"
        );
    }
    deploy::prepare(cluster)?;
    let start = Instant::now();
    helm(cluster, &["install", RELEASE, CHART])?;
    wait::nodes(cluster)?;
    deploy::roll_out(cluster)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("all nodes are Ready {seconds:.1} s after `helm install`");
    let options = smoke::Options {
        pods: PODS,
        lenient: false,
    };
    let checked = smoke::run(cluster, &options).and_then(|()| change(cluster));
    // This restores the cluster even after a failed check. The error of the check takes precedence.
    let uninstalled = uninstall(cluster);
    checked.and(uninstalled)
}

/// Changes a value of the release, and waits until the nodes have it.
fn change(cluster: &Cluster) -> Result<()> {
    let arguments = ["upgrade", RELEASE, CHART, "--set=podLabels.changed=yes"];
    helm(cluster, &arguments)?;
    deploy::roll_out(cluster)?;
    let pods = ["get", "pods", "-A", "-l", "changed=yes", "-o", "name"];
    let changed = sh::read(&mut cluster.kubectl(pods))?.lines().count();
    let nodes = cluster.nodes()?.len();
    ensure!(
        changed == nodes,
        "{changed} of {nodes} agents have the label after `helm upgrade`"
    );
    Ok(())
}

/// Follows the chart's notes. Fails unless the nodes are as before, and only kinds of objects stay.
fn uninstall(cluster: &Cluster) -> Result<()> {
    let patch = format!("--patch={}", chart::removal::<&str>(&[])?);
    deploy::take_off_by(cluster, &patch, || {
        helm(
            cluster,
            &["uninstall", RELEASE, "--cascade=foreground", "--wait"],
        )
    })?;
    let left = sh::read(&mut cluster.kubectl(["get", KINDS, "-A", "-l", OBJECTS, "-o", "name"]))?;
    ensure!(left.is_empty(), "left of the release:\n{left}");
    let kinds = sh::read(&mut cluster.kubectl(["get", "crds", "-l", OBJECTS, "-o", "name"]))?;
    ensure!(
        kinds.lines().count() == 2,
        "kinds after `helm uninstall`:\n{kinds}"
    );
    println!("only the kinds of objects stay after `helm uninstall`");
    Ok(())
}

/// Runs a command of helm.
fn helm(cluster: &Cluster, arguments: &[&str]) -> Result<()> {
    let arguments = [arguments, &[NAMESPACE]].concat();
    sh::read(&mut chart::helm_of(cluster, &arguments)?).map(drop)
}
