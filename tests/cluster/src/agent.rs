//! The agent's container on a node: its process, its end and its restart, its metrics.

use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, deploy, wait};
use serde_json::Value;
use std::fs;
use std::time::Duration;

/// Longest time until an agent runs again. The kubelet restarts a container that ended often after
/// growing pauses.
pub(crate) const LIMIT: Duration = Duration::from_mins(3);
/// Label of the agent's pods.
const LABEL: &str = "app.kubernetes.io/component=agent";
const NAMESPACE: &str = "kube-system";
const METRICS_PORT: u16 = 4628;
/// Clock ticks of `/proc/<pid>/stat` in a second.
const TICKS: f64 = 100.0;

/// A running container of an agent.
pub(crate) struct Agent {
    /// ID of the container.
    pub(crate) id: String,
    /// Its process. The nodes share the process IDs of this machine.
    pub(crate) pid: u32,
}

/// Fails unless the manifest has installed braid on all nodes.
pub(crate) fn ensure_deployed(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes()? {
        ensure!(
            deploy::has_braid(cluster, node)?,
            "{node} has no braid: `cargo xtask cluster deploy` installs it"
        );
    }
    Ok(())
}

/// Returns the running agent of `node`.
pub(crate) fn running(cluster: &Cluster, node: Node) -> Result<Agent> {
    let filter = "labels.\"io.kubernetes.container.name\"==agent";
    let list = ["ctr", "-n", "k8s.io", "containers", "ls", "-q", filter];
    let ids = sh::read(&mut cluster.on(node, list)?)?;
    let tasks = sh::read(&mut cluster.on(node, ["ctr", "-n", "k8s.io", "tasks", "ls"])?)?;
    let found = ids.lines().find_map(|id| task(&tasks, id));
    found.with_context(|| format!("no agent runs on {node}"))
}

/// Finds a running container in a list of tasks.
fn task(tasks: &str, id: &str) -> Option<Agent> {
    let lines = tasks.lines().map(str::split_whitespace);
    lines
        .map(Iterator::collect::<Vec<_>>)
        .find_map(|words| match words[..] {
            [its, pid, "RUNNING"] if its == id => Some(Agent {
                id: id.to_owned(),
                pid: pid.parse().ok()?,
            }),
            _ => None,
        })
}

/// Sends a signal to the agent with this container ID.
pub(crate) fn signal(cluster: &Cluster, node: Node, id: &str, signal: &str) -> Result<()> {
    let kill = ["ctr", "-n", "k8s.io", "tasks", "kill", "--signal", signal];
    sh::read(cluster.on(node, kill)?.arg(id)).map(drop)
}

/// Deletes the pod of the agent on `node`, and waits until the next one is Ready. Its container has
/// no pause after earlier ends.
pub(crate) fn replace(cluster: &Cluster, node: Node) -> Result<Agent> {
    let of_node = format!("--field-selector=spec.nodeName={node}");
    let delete = [
        "delete",
        "pod",
        "-n",
        NAMESPACE,
        "-l",
        LABEL,
        "--grace-period=1",
        &of_node,
    ];
    sh::read(&mut cluster.kubectl(delete))?;
    await_ready(cluster, node)
}

/// Waits until the agent of `node` is Ready, and returns it.
pub(crate) fn await_ready(cluster: &Cluster, node: Node) -> Result<Agent> {
    wait::eventually(LIMIT, || {
        let agent = running(cluster, node)?;
        let ready = ["busybox", "wget", "-qO-", "http://127.0.0.1:4627/readyz"];
        sh::read(&mut cluster.on(node, ready)?)?;
        Ok(agent)
    })
}

/// Ends the agents of all nodes while `work` runs, as if braid had none.
pub(crate) fn without<T>(cluster: &Cluster, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let select = |nodes: &str| {
        let patch =
            format!(r#"{{"spec":{{"template":{{"spec":{{"nodeSelector":{{{nodes}}}}}}}}}}}"#);
        let words = ["patch", "daemonset/braid", "-n", NAMESPACE, "-p"];
        sh::read(cluster.kubectl(words).arg(patch)).map(drop)
    };
    select(r#""braid.test/none":"""#)?;
    let gone = [
        "wait",
        "pod",
        "-n",
        NAMESPACE,
        "-l",
        LABEL,
        "--for=delete",
        &wait::timeout(LIMIT),
    ];
    let done = sh::read(&mut cluster.kubectl(gone)).and_then(|_| work());
    select(r#""braid.test/none":null"#)?;
    for node in cluster.nodes()? {
        await_ready(cluster, node)?;
    }
    done
}

/// Reads the agent's metrics in Prometheus' text format.
pub(crate) fn metrics(cluster: &Cluster, node: Node) -> Result<String> {
    let url = format!("http://{}:{METRICS_PORT}/metrics", node.address());
    sh::read(&mut cluster.on(node, ["busybox", "wget", "-qO-", &url])?)
}

/// Returns the value of a metric with these labels, or of one without; 0 if it is missing.
pub(crate) fn value(metrics: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let is_it = |line: &&str| {
        let rest = line.strip_prefix(name).unwrap_or_default();
        let has = |(key, value): &(&str, &str)| rest.contains(&format!("{key}=\"{value}\""));
        (rest.starts_with('{') || rest.starts_with(' ')) && labels.iter().all(has)
    };
    let line = metrics.lines().find(is_it);
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

impl Agent {
    /// Returns the resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid);
        let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .with_context(|| format!("{path} has no VmRSS"))
    }

    /// Returns the processor time so far, in seconds.
    pub(crate) fn processor_seconds(&self) -> Result<f64> {
        let path = format!("/proc/{}/stat", self.pid);
        let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        // The second word, a name in parentheses, may contain blanks.
        let after = stat.rsplit(") ").next().unwrap_or_default();
        let words: Vec<&str> = after.split(' ').collect();
        let ticks = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
        let (user, system) = ticks(11).zip(ticks(12)).context("parse a stat file")?;
        Ok((user + system) / TICKS)
    }
}

/// An event about an object.
#[derive(Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) severity: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) count: u64,
}

/// Lists the events about an object.
pub(crate) fn events(cluster: &Cluster, kind: &str, name: &str) -> Result<Vec<Event>> {
    let of = format!("--field-selector=involvedObject.kind={kind},involvedObject.name={name}");
    let list = sh::read(&mut cluster.kubectl(["get", "events", "-A", "-o", "json", &of]))?;
    let list: Value = serde_json::from_str(&list).context("parse the list of events")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut events = Vec::new();
    for event in list["items"].as_array().into_iter().flatten() {
        let series = event["series"]["count"].as_u64();
        events.push(Event {
            severity: text(&event["type"]),
            reason: text(&event["reason"]),
            message: text(&event["message"]),
            count: series.or(event["count"].as_u64()).unwrap_or(1).max(1),
        });
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_task_is_no_running_agent() {
        let tasks = "TASK    PID    STATUS\nabc    17    STOPPED\ndef    18    RUNNING\n";
        assert!(task(tasks, "abc").is_none());
        assert_eq!(task(tasks, "def").map(|agent| agent.pid), Some(18));
    }

    #[test]
    fn a_metric_is_found_by_its_labels() {
        let metrics = "# TYPE repairs counter\nrepairs_total{kind=\"link\"} 2\nrepairs_total{kind=\"route\"} 3\ndepth 4\n";
        assert!(value(metrics, "repairs_total", &[("kind", "route")]) > 2.5);
        assert!(value(metrics, "depth", &[]) > 3.5);
        assert!(value(metrics, "repairs_total", &[("kind", "rule")]) < 0.5);
    }
}
