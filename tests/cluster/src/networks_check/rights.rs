//! RBAC rights of braid's service account: pods that need each right, and a comparison of the API
//! server's audit log with the role.

use super::{APP, await_nothing_left, get, manifests};
use crate::leftovers::Traces;
use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::audit::{Audit, granted};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// Longest time until the kubelet has tried to start a pod and the event about its failure exists.
const LIMIT: Duration = Duration::from_secs(30);
const CONFLIST: &str = "etc/cni/net.d/00-braid.conflist";
/// Rights that this cluster may not need, and that the tests in `tests/api` use: for a device of a
/// resource claim, for calls without an agent, for objects that the agent has not seen yet, and for
/// a warning that comes back.
const ELSEWHERE: [&str; 5] = [
    "list resource.k8s.io/resourceslices",
    "get /pods",
    "get k8s.cni.cncf.io/network-attachment-definitions",
    "get k8s.cni.cncf.io/ipamclaims",
    "patch events.k8s.io/events",
];
/// Request that needs no right, by which the agent tries the token of calls.
const WITHOUT_RIGHT: &str = "get /version";
const CLAIM: &str = "ipamclaims.k8s.cni.cncf.io";

/// Fails unless braid uses each right of the shipped roles except those [`ELSEWHERE`]. Also fails if
/// braid sends a request without the right to do so.
pub(super) fn check(cluster: &Cluster, node: Node) -> Result<()> {
    event(cluster, node)?;
    claim(cluster, node)?;
    let audit = Audit::of(cluster)?;
    let mut rights = granted(&get(cluster, &["clusterrole", "braid"])?);
    rights.extend(granted(&get(
        cluster,
        &["role", "braid", "--namespace=kube-system"],
    )?));
    let asked = audit.asked();
    let mut unused: Vec<&String> = rights.difference(&asked).collect();
    unused.retain(|right| !ELSEWHERE.contains(&right.as_str()));
    ensure!(unused.is_empty(), "rights without use: {unused:?}");
    let mut more: Vec<&String> = asked.difference(&rights).collect();
    more.retain(|request| *request != WITHOUT_RIGHT);
    ensure!(more.is_empty(), "requests without a right: {more:?}");
    ensure!(
        audit.forbidden().is_empty(),
        "refused by the API server: {:?}",
        audit.forbidden()
    );
    println!(
        "{} requests used each of {} rights of the roles, and no other",
        audit.requests().len(),
        rights.len()
    );
    Ok(())
}

/// Checks that a pod that requests a missing network does not start, and that an event contains the
/// reason.
fn event(cluster: &Cluster, node: Node) -> Result<()> {
    let pod = manifests::asking("networks-lost", node, &json!([{"name": "nowhere"}]));
    cluster.create(&[pod])?;
    let told = wait::eventually(LIMIT, || {
        let events = get(
            cluster,
            &["events", "--field-selector", "reason=NoNetworkFound"],
        )?;
        let about = |event: &&Value| event["involvedObject"]["name"] == "networks-lost";
        let event = events["items"]
            .as_array()
            .into_iter()
            .flatten()
            .find(about)
            .cloned();
        event
            .and_then(|event| event["message"].as_str().map(String::from))
            .context("no event of networks-lost")
    })?;
    ensure!(told.contains("default/nowhere"), "the event says {told:?}");
    let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    let ready = sh::read(&mut cluster.kubectl(["get", "pod", "networks-lost", "-o", ready]))?;
    ensure!(
        ready == "False",
        "a pod without a requested network is Ready: {ready:?}"
    );
    println!("a pod with a missing network does not start: {told}");
    pods::delete(cluster, "pod", APP)
}

/// Creates two pods, one after the other. Checks that both get the address of an `IPAMClaim`, and
/// that the address becomes free when the claim is deleted.
fn claim(cluster: &Cluster, node: Node) -> Result<()> {
    cluster.create(&[manifests::claim()])?;
    let networks = json!([{"name": manifests::KEPT, "ipam-claim-reference": manifests::KEPT}]);
    let mut had = Vec::new();
    for name in ["networks-first", "networks-second"] {
        super::create(cluster, &[manifests::asking(name, node, &networks)])?;
        had.push(super::attached::address(cluster, name, 1)?);
        pods::delete(cluster, "pod", APP)?;
    }
    let written = get(cluster, &[CLAIM, manifests::KEPT])?["status"]["ips"].clone();
    let expected = json!([format!("{}/24", had[0])]);
    ensure!(
        had[0] == had[1] && written == expected,
        "two pods had {had:?} of the claim with {written}"
    );
    sh::read(&mut cluster.kubectl(["delete", CLAIM, manifests::KEPT]))?;
    collect(cluster, node)?;
    await_nothing_left(cluster, &[(node, Traces::of(cluster, node, APP)?)])?;
    println!(
        "two pods in turn had {} of a claim, and it is free after the deletion of the claim",
        had[0]
    );
    Ok(())
}

/// Calls GC without valid attachments, as a runtime without containers would. containerd itself
/// does not call GC.
fn collect(cluster: &Cluster, node: Node) -> Result<()> {
    let path = cluster.root(node)?.join(CONFLIST);
    let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    let list: Value = serde_json::from_slice(&text).with_context(|| format!("parse {CONFLIST}"))?;
    let mut conf = list["plugins"][0].clone();
    for key in ["name", "cniVersion"] {
        conf[key] = list[key].clone();
    }
    conf["cni.dev/valid-attachments"] = json!([]);
    let call = [
        "env",
        "CNI_COMMAND=GC",
        "CNI_PATH=/opt/cni/bin",
        "/opt/cni/bin/braid",
    ];
    sh::feed(&mut cluster.on(node, call)?, conf.to_string().as_bytes()).map(drop)
}
