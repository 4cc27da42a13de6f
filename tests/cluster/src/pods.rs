//! Busybox pods: manifests, watches and lists.

use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Annotation in which a pod requests networks.
pub(crate) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Value of the label `app` on the pods of the check `burst`. Each check has a separate value.
pub(crate) const BURST: &str = "burst";
pub(crate) const SMOKE: &str = "smoke";
pub(crate) const LIMIT: &str = "limit";
pub(crate) const HOST_PORT: &str = "host-port";
pub(crate) const NETWORKS_CHECK: &str = "networks";
pub(crate) const MULTUS: &str = "multus";
pub(crate) const AGENT: &str = "agent";
pub(crate) const CHAOS: &str = "chaos";
pub(crate) const SETTINGS: &str = "settings";
pub(crate) const VIEW: &str = "view";
pub(crate) const HOT_PLUG: &str = "hot-plug";
pub(crate) const REPAIR: &str = "repair";
pub(crate) const CHURN: &str = "churn";
pub(crate) const IPAM: &str = "ipam";
pub(crate) const CLAIMS: &str = "claims";
pub(crate) const MOVE: &str = "move";
/// Pods that live for one state of a cluster that moves, until those of the next state are Ready.
pub(crate) const EVEN: &str = "move-even";
pub(crate) const ODD: &str = "move-odd";
pub(crate) const APPS: [&str; 18] = [
    BURST,
    SMOKE,
    LIMIT,
    HOST_PORT,
    NETWORKS_CHECK,
    MULTUS,
    AGENT,
    CHAOS,
    SETTINGS,
    VIEW,
    HOT_PLUG,
    REPAIR,
    CHURN,
    IPAM,
    CLAIMS,
    MOVE,
    EVEN,
    ODD,
];

/// Longest time until all pods are Ready, or until all are deleted.
const LONGEST: Duration = Duration::from_mins(5);

/// Returns the spec of a pod that runs `script` in busybox's shell, on any node.
pub(crate) fn spec(script: &str) -> Value {
    json!({
        // A shell as process 1 ignores SIGTERM, so a longer wait is useless.
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": false, // no pod here talks to the API server
        "containers": [{
            "name": "main",
            "image": "localhost/busybox:1",
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script],
        }],
    })
}

/// Returns a pod with the label `app=<app>`, which names its check.
pub(crate) fn pod(name: &str, app: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}}, "spec": spec})
}

/// Returns a pod like [`pod`] that is bound to `node`.
pub(crate) fn on(name: &str, app: &str, node: Node, mut spec: Value) -> Value {
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": node.to_string()});
    pod(name, app, &spec)
}

/// Returns a pod on `node` that requests `networks` and sleeps.
pub(crate) fn requesting(name: &str, app: &str, node: Node, networks: &str) -> Value {
    let mut pod = on(name, app, node, spec("exec sleep 1000000"));
    pod["metadata"]["annotations"] = json!({NETWORKS: networks});
    pod
}

/// Returns a `NetworkAttachmentDefinition` with the label `app=<app>` and the CNI configuration
/// `config`.
pub(crate) fn network(name: &str, app: &str, config: &Value) -> Value {
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"config": config.to_string()},
    })
}

/// Waits until the pods with the label `app=<app>` are Ready.
pub(crate) fn await_ready(cluster: &Cluster, app: &str) -> Result<()> {
    let wait = [
        "wait",
        "--for=condition=Ready",
        &wait::timeout(LONGEST),
        "pod",
        "-l",
    ];
    sh::read(cluster.kubectl(wait).arg(format!("app={app}"))).map(drop)
}

/// Deletes the objects of `kinds` with the label `app=<app>`, and waits until they are gone.
pub(crate) fn delete(cluster: &Cluster, kinds: &str, app: &str) -> Result<()> {
    let delete = [
        "delete",
        kinds,
        "--ignore-not-found",
        &wait::timeout(LONGEST),
        "-l",
    ];
    sh::read(cluster.kubectl(delete).arg(format!("app={app}"))).map(drop)
}

/// Time between the end of a watch and its restart.
const AGAIN: Duration = Duration::from_millis(200);

/// A watch of the pods with a label. `kubectl wait` is too slow for many pods: it takes longer than
/// the pods take to start.
pub(crate) struct Watch<'a> {
    cluster: &'a Cluster,
    app: &'a str,
    end: Instant,
    stream: Stream,
    /// Names of the pods that exist according to the events so far.
    present: BTreeSet<String>,
}

/// Events of a running watch request.
struct Stream {
    kubectl: Child,
    events: Lines<BufReader<ChildStdout>>,
}

impl<'a> Watch<'a> {
    /// Watches all pods with the label `app=<app>`, including those created later. The watch lasts
    /// at most five minutes, multiplied by the factor for slow machines.
    pub(crate) fn start(cluster: &'a Cluster, app: &'a str) -> Result<Self> {
        let stream = Stream::open(cluster, app)?;
        Ok(Self {
            cluster,
            app,
            end: Instant::now() + wait::on_this_machine(LONGEST),
            stream,
            present: BTreeSet::new(),
        })
    }

    /// Reads events until `count` different pods have had an event for which `holds` returns true.
    pub(crate) fn until(
        &mut self,
        what: &str,
        count: usize,
        holds: fn(&Value) -> bool,
    ) -> Result<()> {
        let mut names = BTreeSet::new();
        while names.len() < count {
            let events = self
                .read()
                .with_context(|| format!("wait until {count} pods {what}: {} did", names.len()))?;
            names.extend(
                events
                    .iter()
                    .filter(|event| holds(event))
                    .map(|event| name(&event["object"])),
            );
        }
        Ok(())
    }

    /// Returns the next events. If the watch has ended early, for example on a slow machine,
    /// restarts it. The new watch reports the existing pods again. For each pod that no longer
    /// exists, this returns a DELETED event.
    pub(crate) fn read(&mut self) -> Result<Vec<Value>> {
        if let Some(line) = self.stream.events.next() {
            let event: Value =
                serde_json::from_str(&line?).context("parse an event about a pod")?;
            let name = name(&event["object"]);
            match event["type"].as_str() {
                Some("DELETED") => drop(self.present.remove(&name)),
                Some("ADDED" | "MODIFIED") => drop(self.present.insert(name)),
                _ => return Ok(Vec::new()), // an error, after which the watch ends
            }
            return Ok(vec![event]);
        }
        ensure!(Instant::now() < self.end, "not within {LONGEST:?}");
        thread::sleep(AGAIN);
        self.stream = Stream::open(self.cluster, self.app)?;
        let there: BTreeSet<String> = list(self.cluster, self.app)?.iter().map(name).collect();
        let gone = self.present.difference(&there).map(deleted).collect();
        self.present = there;
        Ok(gone)
    }
}

impl Stream {
    fn open(cluster: &Cluster, app: &str) -> Result<Self> {
        let seconds = wait::on_this_machine(LONGEST).as_secs();
        let path = format!(
            "/api/v1/namespaces/default/pods?watch=1&timeoutSeconds={seconds}&labelSelector=app%3D{app}"
        );
        let mut command = cluster.kubectl(["get", "--raw", &path]);
        let mut kubectl = command
            .stdout(Stdio::piped())
            .spawn()
            .context("start kubectl")?;
        let events =
            BufReader::new(kubectl.stdout.take().context("kubectl has no output")?).lines();
        Ok(Self { kubectl, events })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // kubectl may have ended already.
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Returns a DELETED event for a pod.
fn deleted(name: &String) -> Value {
    json!({"type": "DELETED", "object": {"metadata": {"name": name}}})
}

/// Returns true if the event's pod is Ready.
pub(crate) fn is_ready(event: &Value) -> bool {
    let conditions = event["object"]["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Returns true if the event says that its pod is deleted.
pub(crate) fn is_gone(event: &Value) -> bool {
    event["type"] == "DELETED"
}

/// Lists the pods with the label `app=<app>`, as the API server has them.
pub(crate) fn list(cluster: &Cluster, app: &str) -> Result<Vec<Value>> {
    let text =
        sh::read(&mut cluster.kubectl(["get", "pods", "-o", "json", "-l", &format!("app={app}")]))?;
    let mut list: Value = serde_json::from_str(&text).context("parse the list of pods")?;
    Ok(list["items"]
        .as_array_mut()
        .map(std::mem::take)
        .unwrap_or_default())
}

/// Parses the `network-status` annotation of a pod; empty if the pod has no such annotation.
pub(crate) fn network_status(pod: &Value) -> Vec<Value> {
    let text = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"].as_str();
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// Lists the IDs of the sandboxes that the runtime of `node` has for pods with the label
/// `app=<app>`, including ended sandboxes.
pub(crate) fn sandboxes(cluster: &Cluster, node: Node, app: &str) -> Result<Vec<String>> {
    labelled(cluster, node, &format!("labels.app=={app}"))
}

/// Lists the IDs of a pod's sandboxes on `node`, including ended sandboxes.
pub(crate) fn sandboxes_of(cluster: &Cluster, node: Node, pod: &str) -> Result<Vec<String>> {
    labelled(
        cluster,
        node,
        &format!("labels.\"io.kubernetes.pod.name\"=={pod}"),
    )
}

fn labelled(cluster: &Cluster, node: Node, label: &str) -> Result<Vec<String>> {
    let filter = format!("{label},labels.\"io.cri-containerd.kind\"==sandbox");
    let ids = sh::read(&mut cluster.on(
        node,
        ["ctr", "-n", "k8s.io", "containers", "ls", "-q", &filter],
    )?)?;
    Ok(ids.lines().map(String::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_ready_by_its_condition_and_gone_by_its_event() {
        let event = |kind: &str, ready: &str| {
            json!({"type": kind, "object": {"status": {"conditions": [
                {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready},
            ]}}})
        };
        assert!(is_ready(&event("MODIFIED", "True")) && !is_ready(&event("MODIFIED", "False")));
        assert!(is_gone(&event("DELETED", "False")) && !is_gone(&event("MODIFIED", "False")));
    }
}
