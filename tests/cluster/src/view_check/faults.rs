//! Faults that `kubectl braid doctor` must find on the right node: a name that another program took,
//! and a node without an agent.

use super::view::{LIMIT, View, each, parse, text};
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node, deploy, sh, wait};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

/// Name of a plugin that another program takes.
const NAME: &str = "opt/cni/bin/portmap";

pub(super) fn check(view: &View<'_>, [node, other]: [Node; 2]) -> Result<()> {
    let healthy = view.read("doctor")?;
    println!("kubectl braid doctor:\n{healthy}");
    for word in ["agent:", "tmpfs", "bpffs", "leases", "records", "names"] {
        ensure!(
            !healthy.contains(word),
            "{word:?} is wrong on a healthy cluster: {healthy}"
        );
    }
    for node in [node, other] {
        agrees(view.cluster, node)?;
    }
    println!("doctor has the same states on a node and in its agent's container");
    taken(view, node)?;
    without_agent(view, other)
}

/// Compares `braid doctor` on the node and in the agent's container. There, checks of hidden files are
/// notes. Fails also if the container's findings reached the node's calls.
fn agrees(cluster: &Cluster, node: Node) -> Result<()> {
    let node_name = format!("--field-selector=spec.nodeName={node}");
    let labels = "app.kubernetes.io/component=agent";
    let find = [
        "get",
        "pod",
        "-n",
        "kube-system",
        "-l",
        labels,
        &node_name,
        "-o",
        "name",
    ];
    let pod = sh::read(&mut cluster.kubectl(find))?;
    let exec = ["exec", "-n", "kube-system", pod.trim(), "-c", "agent", "--"];
    let doctor = ["doctor", "-o", "json"];
    let outside = sh::read(cluster.on(node, ["/opt/cni/bin/braid"])?.args(doctor))?;
    let inside = sh::read(cluster.kubectl(exec).arg("/braid").args(doctor))?;
    let outside = states(&outside)?;
    for (check, state) in states(&inside)? {
        let on_node = outside.get(&check);
        ensure!(
            state == "note" || on_node == Some(&state),
            "{node}: {check} is {state} in the container, {on_node:?} on the node"
        );
    }
    let features = fs::read_to_string(cluster.root(node)?.join("run/braid/kernel"))?;
    for name in ["tun", "cgroup_bpf"] {
        let is_missing = features
            .lines()
            .any(|line| line.starts_with(&format!("{name}\t")));
        let is_on_node = outside.get(name).is_some_and(|state| state == "ok");
        ensure!(
            !(is_missing && is_on_node),
            "{node}: calls believe that {name} is missing"
        );
    }
    Ok(())
}

/// Returns the states of the checks by name.
fn states(checks: &str) -> Result<BTreeMap<String, String>> {
    let mut states = BTreeMap::new();
    for check in each(&parse(checks)?) {
        states.insert(
            text(&check["name"]).to_owned(),
            text(&check["state"]).to_owned(),
        );
    }
    Ok(states)
}

/// Replaces a plugin on the node for a while.
fn taken(view: &View<'_>, node: Node) -> Result<()> {
    let path = view.cluster.root(node)?.join(NAME);
    let aside = path.with_extension("aside");
    fs::rename(&path, &aside).with_context(|| format!("rename {}", path.display()))?;
    let found = fs::write(&path, "another plugin")
        .with_context(|| format!("write {}", path.display()))
        .and_then(|()| fault(view, "names kept"));
    fs::rename(&aside, &path).with_context(|| format!("restore {}", path.display()))?;
    let found = found?;
    ensure!(found["nodes"] == json!([node.to_string()]), "{found}");
    ensure!(
        text(&found["text"]).contains("portmap no longer start braid"),
        "{found}"
    );
    println!("doctor: {found}");
    Ok(())
}

/// Removes the agent from the node for a while.
fn without_agent(view: &View<'_>, node: Node) -> Result<()> {
    let others =
        json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node.to_string()]});
    let terms = json!([{"matchExpressions": [others]}]);
    let required =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    patch(view.cluster, &json!({"nodeAffinity": required}))?;
    let found = wait::eventually(LIMIT, || judge_without(view, node));
    patch(view.cluster, &Value::Null)?;
    println!("doctor: {}", found?);
    wait::eventually(LIMIT, || view.read("doctor"))?;
    Ok(())
}

fn judge_without(view: &View<'_>, node: Node) -> Result<Value> {
    let found = fault(view, "agent")?;
    ensure!(found["nodes"] == json!([node.to_string()]), "{found}");
    ensure!(found["level"] == "error", "{found}");
    let out = view.run("doctor")?;
    ensure!(out.status.code() == Some(1), "doctor: {}", out.status);
    let status = view.read("status")?;
    let row = status
        .lines()
        .find(|line| line.starts_with(&node.to_string()));
    ensure!(row.is_some_and(|row| row.ends_with("no agent")), "{status}");
    Ok(found)
}

/// Returns the fault with this subject.
fn fault(view: &View<'_>, subject: &str) -> Result<Value> {
    let out = view.run("doctor -o json")?;
    let faults = parse(&String::from_utf8_lossy(&out.stdout))?;
    let found = each(&faults).find(|fault| fault["subject"] == subject);
    found
        .cloned()
        .with_context(|| format!("no {subject:?} in {faults}"))
}

/// Sets the affinity of the agent's pods, and waits for new ones.
fn patch(cluster: &Cluster, affinity: &Value) -> Result<()> {
    let patch = json!({"spec": {"template": {"spec": {"affinity": affinity}}}}).to_string();
    let command = [
        "patch",
        "daemonset/braid",
        "-n",
        "kube-system",
        "--type=merge",
        "-p",
    ];
    sh::read(cluster.kubectl(command).arg(patch))?;
    deploy::roll_out(cluster)
}
