//! Check that `kubectl braid` shows a running cluster as it is: attachments and addresses, rates of
//! a known transfer, faults, and that it leaves no process behind.

mod faults;
mod top;
mod view;

use crate::limit_check::{self, EGRESS, INGRESS};
use crate::pods;
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::{Cluster, Node, deploy, sh, wait};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use view::{FREE, LIMIT, LIMITED, View, each, parse, text};

const APP: &str = pods::VIEW;
/// Name of the second network.
const NETWORK: &str = "view-lan";
const SUBNET: &str = "198.51.100.0/24";

/// Creates the pods, compares the output of `kubectl braid`, and deletes the pods.
pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    let [node, other, ..] = cluster.nodes()?[..] else {
        bail!("the cluster has one node, and this check needs two")
    };
    for node in [node, other] {
        ensure!(
            deploy::has_braid(cluster, node)?,
            "{node} has no braid: `cargo xtask cluster deploy` installs it"
        );
    }
    delete(cluster)?; // what an earlier run left to look at
    let view = View::new(cluster, node)?;
    cluster.create(&[network()])?;
    let limits = json!({
        "kubernetes.io/egress-bandwidth": EGRESS.0,
        "kubernetes.io/ingress-bandwidth": INGRESS.0,
        "k8s.v1.cni.cncf.io/networks": NETWORK,
    });
    cluster.create(&[pod(LIMITED, node, &limits), pod(FREE, other, &json!({}))])?;
    pods::await_ready(cluster, APP)?;
    status(&view)?;
    top::check(&view)?;
    faults::check(&view, [node, other])?;
    delete(cluster)
}

fn network() -> Value {
    let config = json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "view0",
        "ipam": {"type": "host-local", "subnet": SUBNET}});
    json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": NETWORK, "labels": {"app": APP}}, "spec": {"config": config.to_string()}})
}

fn pod(name: &str, node: Node, annotations: &Value) -> Value {
    let mut spec = limit_check::spec();
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": node.to_string()});
    let mut pod = pods::pod(name, APP, &spec);
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}

fn delete(cluster: &Cluster) -> Result<()> {
    pods::delete(cluster, "pod,net-attach-def", APP)
}

/// Compares the attachments with the pods of the API server, and the addresses with both.
fn status(view: &View<'_>) -> Result<()> {
    wait::eventually(LIMIT, || compare(view))?;
    let table = view.read("status")?;
    for word in [NETWORK, LIMITED, "FULLEST", "egress"] {
        ensure!(table.contains(word), "no {word} in {table}");
    }
    println!("kubectl braid status:\n{table}");
    Ok(())
}

fn compare(view: &View<'_>) -> Result<()> {
    let status = parse(&view.read("status -o json")?)?;
    let names: Vec<&str> = each(&status["nodes"])
        .map(|node| text(&node["node"]))
        .collect();
    let nodes = view.cluster.nodes()?;
    let expected: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    ensure!(names == expected, "nodes {names:?}, not {expected:?}");
    let all = ["get", "pods", "--all-namespaces", "-o", "json"];
    let list = parse(&sh::read(&mut view.cluster.kubectl(all))?)?;
    let mut pods = BTreeSet::new();
    for pod in each(&list["items"]) {
        let metadata = &pod["metadata"];
        let name = format!(
            "{}/{}",
            text(&metadata["namespace"]),
            text(&metadata["name"])
        );
        if pod["spec"]["hostNetwork"] != true {
            pods.insert((name, text(&pod["status"]["podIP"]).to_owned()));
        }
    }
    let (mut attached, mut count) = (BTreeSet::new(), 0);
    for node in each(&status["nodes"]) {
        let mut used = 0;
        for one in each(&node["attachments"]) {
            let address = text(&one["addresses"][0])
                .split('/')
                .next()
                .unwrap_or_default();
            if one["ifname"] == "eth0" {
                attached.insert((text(&one["pod"]).to_owned(), address.to_owned()));
                used += 1;
            }
            count +=
                usize::from(one["network_attachment_definition"] == format!("default/{NETWORK}"));
        }
        let is_default = |network: &&Value| network["network"] == "pods";
        let default = each(&node["networks"]).find(is_default);
        let ranges = default.context("no network \"pods\"")?;
        ensure!(
            ranges["ranges"][0]["used"] == used,
            "{used} pods, and {ranges}"
        );
    }
    ensure!(pods == attached, "pods {pods:?}, attachments {attached:?}");
    ensure!(count == 1, "{count} attachments of {NETWORK}");
    Ok(())
}
