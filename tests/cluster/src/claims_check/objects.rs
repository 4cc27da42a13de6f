//! Pods and claims of the check, as the API server and the nodes have them.

use super::manifests::{APP, INTERFACE};
use crate::pods;
use crate::running::Pod;
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node, sh, wait};
use serde_json::Value;
use std::fs;
use std::time::Duration;

/// Longest time until a pod is Ready: the kubelet tries again only after 60-90 s.
const START: Duration = Duration::from_mins(2);
/// Longest time until everything of deleted pods is gone.
const GONE: Duration = Duration::from_mins(1);
/// Folder of prepared claims on a node.
const PREPARED: &str = "run/braid/claims";

/// Deletes all pods and claims of the check, and waits until nothing of them is left.
pub(super) fn delete(cluster: &Cluster) -> Result<()> {
    // The scheduler would place a waiting pod as soon as another is gone.
    let waiting = [
        "delete",
        "pod",
        "--field-selector=status.phase=Pending",
        "-l",
    ];
    sh::read(cluster.kubectl(waiting).arg(format!("app={APP}")))?;
    pods::delete(cluster, "pod", APP)?;
    pods::delete(cluster, "resourceclaim,resourceclaimtemplate", APP)?;
    await_none(cluster)
}

/// Waits until no claim is allocated, and no node has one prepared.
pub(super) fn await_none(cluster: &Cluster) -> Result<()> {
    wait::eventually(GONE, || {
        let claims = get(cluster, &["resourceclaims"])?;
        for claim in claims["items"].as_array().into_iter().flatten() {
            let status = &claim["status"];
            ensure!(
                status["allocation"].is_null(),
                "a claim is allocated: {status}"
            );
        }
        for node in cluster.nodes()? {
            let folder = cluster.root(node)?.join(PREPARED);
            let files = fs::read_dir(&folder).into_iter().flatten().flatten();
            let files = files.filter(|file| file.path().extension().is_some());
            let names: Vec<_> = files.map(|file| file.file_name()).collect();
            ensure!(names.is_empty(), "{node} has prepared {names:?}");
        }
        Ok(())
    })
}

pub(super) fn get(cluster: &Cluster, words: &[&str]) -> Result<Value> {
    let get = [&["get", "-o", "json"], words].concat();
    let text = sh::read(&mut cluster.kubectl(get))?;
    serde_json::from_str(&text).context("parse the answer of kubectl")
}

/// Waits until a pod is Ready, and returns it. Fails unless it has the interface of its claim.
pub(super) fn ready<'c>(cluster: &'c Cluster, node: Node, name: &str) -> Result<Pod<'c>> {
    let condition = ["wait", "--for=condition=Ready", &wait::timeout(START)];
    sh::read(cluster.kubectl(condition).arg(format!("pod/{name}")))?;
    let pod = Pod::running(cluster, node, name)?;
    ensure!(
        pod.links()?.contains_key(INTERFACE),
        "{name} is Ready without {INTERFACE}"
    );
    Ok(pod)
}

/// Waits until a pod has an event with this text.
pub(super) fn await_event(cluster: &Cluster, pod: &str, reason: &str, text: &str) -> Result<()> {
    wait::eventually(GONE, || {
        let events = crate::agent::events(cluster, "Pod", pod)?;
        let is_it =
            |event: &&crate::agent::Event| event.reason == reason && event.message.contains(text);
        ensure!(
            events.iter().any(|event| is_it(&event)),
            "{pod} has no {reason} with {text:?}: {events:?}"
        );
        Ok(())
    })
}

/// Waits until the claims of a pod have a status of each device that agrees with the pod's interface.
pub(super) fn await_status(cluster: &Cluster, pod: &Pod<'_>) -> Result<()> {
    let links = pod.links()?;
    wait::eventually(GONE, || {
        let object = get(cluster, &["pod", &pod.name])?;
        let mut count = 0;
        for status in object["status"]["resourceClaimStatuses"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let name = status["resourceClaimName"].as_str().context("no claim")?;
            let claim = get(cluster, &["resourceclaim", name])?;
            for device in claim["status"]["devices"].as_array().into_iter().flatten() {
                let data = &device["networkData"];
                let interface = data["interfaceName"].as_str().unwrap_or_default();
                let link = links
                    .get(interface)
                    .with_context(|| format!("{interface}: {device}"))?;
                ensure!(
                    data["hardwareAddress"] == link.mac,
                    "{device}, but {link:?}"
                );
                let condition = &device["conditions"][0];
                ensure!(
                    condition["type"] == "Ready" && condition["status"] == "True",
                    "{condition}"
                );
                for ip in data["ips"].as_array().into_iter().flatten() {
                    let ip = ip.as_str().unwrap_or_default();
                    let address = ip.split('/').next().unwrap_or_default().parse()?;
                    ensure!(link.addresses.contains(&address), "{ip} is not of {link:?}");
                }
                count += 1;
            }
        }
        ensure!(count > 0, "the claims of {} have no status", pod.name);
        Ok(())
    })
}
