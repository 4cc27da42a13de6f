//! Check that Multus' end-to-end scripts pass with braid. The scripts are `simple-pod`,
//! `simple-macvlan1`, `default-route1`, `subdirectory-chaining` and `connection-limit` of Multus'
//! folder `e2e`, rewritten in Rust.
//!
//! Multus' entry point generates each node's configuration and its kubeconfig. The only change is
//! `"type": "braid"` instead of `"type": "multus"`. Account, role and CRD of networks come from
//! Multus' manifest.

pub(crate) mod config;
mod scripts;

use crate::pods::{self, MULTUS as APP};
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, deploy, multus, wait};
use config::Form;
use serde_json::{Deserializer, Value};
use std::time::Duration;

/// Kinds of objects that the check creates from Multus' manifest. It does not create the manifest's
/// `DaemonSet`. Instead, it starts the entry point of the `DaemonSet`'s container as a process.
const KINDS: [&str; 4] = [
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "ServiceAccount",
];
/// kubectl's names for the created kinds that have no namespace.
const CLUSTER_KINDS: &str = "customresourcedefinition,clusterrolebinding,clusterrole";
const NAMESPACE: &str = "kube-system";
const ACCOUNT: &str = "multus";
/// Name of the CRD for `NetworkAttachmentDefinition`, which an earlier check may have left.
const DEFINITION: &str = "network-attachment-definitions.k8s.cni.cncf.io";
const LIMIT: Duration = Duration::from_mins(2);

/// Runs the scripts with each form of the configuration, then removes everything that the check has
/// created.
pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    let [node, other, ..] = cluster.nodes()?[..] else {
        bail!("the cluster has one node, and this check needs two")
    };
    let nodes = [node, other];
    for node in nodes {
        ensure!(
            deploy::has_braid(cluster, node)?,
            "{node} has no braid: `cargo xtask cluster deploy` installs it"
        );
    }
    remove(cluster, nodes)?; // left by an earlier run that failed
    let objects = objects(cluster)?;
    cluster.create(&objects)?;
    await_definition(cluster)?;
    let entrypoint = multus::entrypoint()?;
    for form in Form::ALL {
        for node in nodes {
            config::write(cluster, node, form, (&entrypoint, "braid"))
                .with_context(|| format!("configure {node}"))?;
        }
        wait::nodes(cluster)?;
        println!("the nodes have Multus' configuration of type braid: {form}");
        scripts::run(cluster, nodes, form)?;
    }
    remove(cluster, nodes)
}

/// Waits until the API server accepts networks.
pub(crate) fn await_definition(cluster: &Cluster) -> Result<()> {
    sh::read(&mut cluster.kubectl([
        "wait",
        "crd",
        DEFINITION,
        "--for=condition=Established",
        &wait::timeout(LIMIT),
    ]))
    .map(drop)
}

/// Returns Multus' service account, its role and the CRD of networks, from Multus' manifest.
pub(crate) fn objects(cluster: &Cluster) -> Result<Vec<Value>> {
    let mut parse = cluster.kubectl(["create", "--dry-run=client", "-o", "json", "-f"]);
    let text = sh::read(parse.arg(multus::manifest()?))?;
    let parsed: Result<Vec<Value>, _> = Deserializer::from_str(&text).into_iter().collect();
    let has_definition =
        !sh::read(&mut cluster.kubectl(["get", "crd", DEFINITION, "--ignore-not-found"]))?
            .is_empty();
    let is_missing = |object: &Value| !(has_definition && object["kind"] == KINDS[0]);
    let mut all = parsed.context("parse Multus' manifest")?;
    all.retain(|object| KINDS.iter().any(|kind| object["kind"] == *kind) && is_missing(object));
    for object in &mut all {
        object["metadata"]["labels"]["app"] = APP.into();
    }
    let made: Vec<&Value> = all.iter().map(|object| &object["kind"]).collect();
    ensure!(
        KINDS[1..]
            .iter()
            .all(|kind| made.iter().any(|it| *it == kind)),
        "Multus' manifest has only {made:?}"
    );
    Ok(all)
}

/// Deletes the pods, networks, service account and configurations of the check.
pub(crate) fn remove(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    pods::delete(cluster, "pod", APP)?;
    if !sh::read(&mut cluster.kubectl(["get", "crd", DEFINITION, "--ignore-not-found"]))?.is_empty()
    {
        pods::delete(cluster, "net-attach-def", APP)?;
    }
    pods::delete(cluster, CLUSTER_KINDS, APP)?;
    sh::read(&mut cluster.kubectl([
        "delete",
        "serviceaccount",
        ACCOUNT,
        "-n",
        NAMESPACE,
        "--ignore-not-found",
    ]))?;
    for node in nodes {
        config::remove(cluster, node).with_context(|| format!("restore {node}"))?;
    }
    wait::nodes(cluster)
}
