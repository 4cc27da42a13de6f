//! The agent of each node, from lists of pods and nodes.

use super::kubectl::{CONTAINER, Kubectl, one_line};
use crate::cli::output;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::error::Error;

/// Labels of the agents' pods in deploy/braid.yaml.
const LABELS: &str = "app.kubernetes.io/name=braid,app.kubernetes.io/component=agent";
/// Labels of nodes on which an agent can run, as in deploy/braid.yaml.
const LINUX: &str = "kubernetes.io/os=linux";

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    /// `None` if no pod of the agent is on the node.
    pub(super) agent: Option<Agent>,
}

/// The agent's pod of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) image: String,
    /// Digest of the image that runs; empty if none does.
    pub(super) image_id: String,
    /// True if a program can be started in the container.
    pub(super) is_running: bool,
    /// Reason why the agent is not ready; `None` if it is.
    pub(super) not_ready: Option<String>,
}

impl Node {
    /// Returns the agent if a program can be started in its container, otherwise the reason.
    pub(super) fn running(&self) -> Result<&Agent, String> {
        let agent = self.agent.as_ref().ok_or("no agent")?;
        if agent.is_running {
            return Ok(agent);
        }
        let reason = agent.not_ready.as_deref().unwrap_or_default();
        Err(format!("the agent is not running: {reason}"))
    }
}

impl Agent {
    /// Returns the namespace and the name of the pod.
    pub(super) fn place(&self) -> (&str, &str) {
        (&self.namespace, &self.pod)
    }
}

/// Lists the nodes of the cluster, sorted by name.
pub(super) fn list(kubectl: &Kubectl) -> Result<Vec<Node>, Box<dyn Error>> {
    let pods: List = serde_json::from_str(&kubectl.pods(LABELS)?)
        .map_err(|err| format!("parse the list of pods: {err}"))?;
    let names = kubectl.nodes(LINUX).unwrap_or_else(|words| {
        let said = format_args!("nodes without an agent can't be listed: {words}");
        output::tell(said);
        String::new()
    });
    let nodes = nodes(pods.items, names.lines());
    if nodes.is_empty() {
        return Err(format!("no pod has the labels {LABELS}").into());
    }
    Ok(nodes)
}

/// Joins pods of agents with the names of nodes. A node may have an old and a new pod.
fn nodes<'a>(pods: Vec<Pod>, names: impl Iterator<Item = &'a str>) -> Vec<Node> {
    let mut agents: BTreeMap<String, Option<(Pod, Agent)>> = BTreeMap::new();
    for name in names {
        agents.insert(name.to_owned(), None);
    }
    for pod in pods {
        if pod.spec.node_name.is_empty() || !pod.metadata.is_of_daemon_set() {
            continue;
        }
        let agent = pod.agent();
        let rank = |pod: &Pod, agent: &Agent| {
            let is_staying = pod.metadata.deletion_timestamp.is_none();
            (is_staying, agent.is_running, agent.not_ready.is_none())
        };
        let known = agents.entry(pod.spec.node_name.clone()).or_default();
        let is_better = known
            .as_ref()
            .is_none_or(|(other, its)| rank(other, its) < rank(&pod, &agent));
        if is_better {
            *known = Some((pod, agent));
        }
    }
    let mut nodes = Vec::new();
    for (name, known) in agents {
        let agent = known.map(|(_, agent)| agent);
        nodes.push(Node { name, agent });
    }
    nodes
}

/// A list of pods, with the fields that are read.
#[derive(Debug, Deserialize)]
struct List {
    items: Vec<Pod>,
}

#[derive(Debug, Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    deletion_timestamp: Option<String>,
    owner_references: Vec<Owner>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    kind: String,
}

impl Metadata {
    /// True for a pod of a `DaemonSet`. Any other pod may have the labels of an agent.
    fn is_of_daemon_set(&self) -> bool {
        let mut owners = self.owner_references.iter();
        owners.any(|owner| owner.kind == "DaemonSet")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
    containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    name: String,
    image: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    #[serde(rename = "imageID")]
    image_id: String,
    state: State,
    last_state: State,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Reason>,
    running: Option<Empty>,
    terminated: Option<Reason>,
}

#[derive(Debug, Default, Deserialize)]
struct Empty {}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reason {
    reason: String,
    message: String,
}

impl Pod {
    fn agent(&self) -> Agent {
        let (metadata, status) = (&self.metadata, &self.status);
        let is_agent = |name: &str| name == CONTAINER;
        let mut agent = Agent {
            namespace: metadata.namespace.clone(),
            pod: metadata.name.clone(),
            ..Agent::default()
        };
        for container in &self.spec.containers {
            if is_agent(&container.name) {
                agent.image.clone_from(&container.image);
            }
        }
        for container in &status.container_statuses {
            if is_agent(&container.name) {
                agent.image_id.clone_from(&container.image_id);
                agent.is_running = container.state.running.is_some();
            }
        }
        agent.not_ready = self.not_ready();
        agent
    }

    /// Returns the reason why the pod is not ready, in the words of its status.
    fn not_ready(&self) -> Option<String> {
        let status = &self.status;
        let mut words = Vec::new();
        let ready = status.conditions.iter().find(|one| one.kind == "Ready");
        match ready {
            Some(ready) if ready.status == "True" => return None,
            Some(ready) => words.push(sentence(&ready.reason, &ready.message)),
            None => words.push(status.phase.clone()),
        }
        let containers = status.init_container_statuses.iter();
        for container in containers.chain(&status.container_statuses) {
            let (state, last) = (&container.state, &container.last_state);
            for reason in [&state.waiting, &state.terminated, &last.terminated] {
                let Some(reason) = reason else { continue };
                // An installation that succeeded.
                if reason.reason != "Completed" {
                    let said = sentence(&reason.reason, &reason.message);
                    words.push(format!("container {}: {said}", container.name));
                }
            }
        }
        words.retain(|word| !word.is_empty());
        Some(words.join("; "))
    }
}

fn sentence(reason: &str, message: &str) -> String {
    let message = one_line(message);
    if message.is_empty() {
        return reason.to_owned();
    }
    format!("{reason}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, node: &str, ready: &str, state: &Value) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "kube-system",
                "ownerReferences": [{"kind": "DaemonSet", "name": "braid"}]},
            "spec": {"nodeName": node, "containers": [{"name": "agent", "image": "braid:1"}]},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": ready, "reason": "ContainersNotReady",
                    "message": "containers with unready status: [agent]"}],
                "containerStatuses": [{"name": "agent", "imageID": "sha256:1", "state": state}],
            },
        })
    }

    fn parse(pods: &[Value], names: &[&str]) -> Vec<Node> {
        let list: List =
            serde_json::from_str(&json!({"items": pods}).to_string()).expect("a list of pods");
        nodes(list.items, names.iter().copied())
    }

    #[test]
    fn nodes_are_those_with_agents_and_those_without() {
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
        let pods = [
            pod("a", "n2", "True", &running),
            pod("b", "n3", "False", &waiting),
        ];
        let found = parse(&pods, &["n1", "n2"]);
        let agent = |pod: &str| Agent {
            namespace: "kube-system".to_owned(),
            pod: pod.to_owned(),
            image: "braid:1".to_owned(),
            image_id: "sha256:1".to_owned(),
            is_running: true,
            not_ready: None,
        };
        let reason = "ContainersNotReady: containers with unready status: [agent]; \
                      container agent: CrashLoopBackOff: back-off 10s";
        let ill = Agent {
            is_running: false,
            not_ready: Some(reason.to_owned()),
            ..agent("b")
        };
        let node = |name: &str, agent| Node {
            name: name.to_owned(),
            agent,
        };
        let expected = [
            node("n1", None),
            node("n2", Some(agent("a"))),
            node("n3", Some(ill)),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn of_two_pods_on_a_node_the_one_that_stays_counts() {
        let running = json!({"running": {}});
        let mut leaving = pod("a", "n1", "True", &running);
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let staying = pod("b", "n1", "False", &running);
        for pods in [[leaving.clone(), staying.clone()], [staying, leaving]] {
            let found = parse(&pods, &[]);
            let agent = found[0].agent.as_ref().expect("an agent");
            assert_eq!((found.len(), agent.pod.as_str()), (1, "b"));
        }
    }
}
