//! Objects for the API server: pods of busybox, and creating and awaiting them.

use super::state::{Cluster, Node};
use crate::sh;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

/// The labels `app` of the pods of each verb that makes any.
pub(crate) const BURST: &str = "burst";
pub(crate) const SMOKE: &str = "smoke";
pub(crate) const APPS: [&str; 2] = [BURST, SMOKE];

/// The spec of a pod that runs `script` in busybox's shell, on any node.
pub(crate) fn spec(script: &str) -> Value {
    json!({
        // A shell as process 1 ignores SIGTERM; nothing is to be gained from waiting for it.
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{
            "name": "main",
            "image": "localhost/busybox:1",
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script],
        }],
    })
}

/// Creates all `objects` with one call.
pub(crate) fn create(cluster: &Cluster, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let mut command = cluster.kubectl(["create", "-f", "-"]);
    let mut kubectl = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("start kubectl")?;
    kubectl.stdin.take().context("kubectl has no input")?.write_all(list.to_string().as_bytes())?;
    let status = kubectl.wait()?;
    if !status.success() {
        bail!("kubectl create of {} objects: {status}", objects.len());
    }
    Ok(())
}

/// Waits until `condition` (`condition=Ready`, `delete`) holds for every pod with the label `app=<app>`.
pub(crate) fn wait(cluster: &Cluster, app: &str, condition: &str) -> Result<()> {
    let args = ["wait", "pod", "-l", &format!("app={app}"), &format!("--for={condition}"), "--timeout=180s"];
    sh::read(&mut cluster.kubectl(args)).map(drop)
}

/// The pods with the label `app=<app>`, as the API server has them.
pub(crate) fn list(cluster: &Cluster, app: &str) -> Result<Vec<Value>> {
    let text = sh::read(&mut cluster.kubectl(["get", "pods", "-o", "json", "-l", &format!("app={app}")]))?;
    let mut list: Value = serde_json::from_str(&text).context("parse the list of pods")?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// The ids of the sandboxes, ended ones included, that `node`'s runtime knows for the pods with the label `app=<app>`.
pub(crate) fn sandboxes(cluster: &Cluster, node: Node, app: &str) -> Result<Vec<String>> {
    let filter = format!("labels.app=={app},labels.\"io.cri-containerd.kind\"==sandbox");
    let ids = sh::read(&mut cluster.on(node, ["ctr", "-n", "k8s.io", "containers", "ls", "-q", &filter])?)?;
    Ok(ids.lines().map(String::from).collect())
}
