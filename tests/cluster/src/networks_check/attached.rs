//! Comparison of a pod's status with its network namespace, as shown by `ip`.

use crate::pods;
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// A pod: its name, its status at the API server, and its links from the kernel.
struct Seen {
    name: String,
    status: Vec<Value>,
    links: Value,
}

/// Compares the `network-status` annotation of each pod with the label `app=<app>`. Fails unless
/// the annotation has the expected networks of the pod's node and agrees with the pod's network
/// namespace. Also fails if two pods have the same address.
pub(crate) fn check(
    cluster: &Cluster,
    (app, nodes): (&str, [Node; 2]),
    networks: impl Fn(Node) -> Vec<String>,
) -> Result<()> {
    let pods = pods::list(cluster, app)?;
    // A bridge's addresses are unique only on its node.
    let mut taken = BTreeSet::new();
    for node in nodes {
        let pids = pids(cluster, node)?;
        for pod in pods
            .iter()
            .filter(|pod| pod["spec"]["nodeName"] == node.to_string())
        {
            let seen = Seen::of(cluster, node, pod, &pids)?;
            let differences = seen.differences(&networks(node), &pod["status"]["podIP"]);
            ensure!(
                differences.is_empty(),
                "{} on {node}: {}",
                seen.name,
                differences.join("\n")
            );
            for (entry, address) in addresses(&seen.status) {
                let network = entry["name"].as_str().unwrap_or_default();
                ensure!(
                    taken.insert(format!("{node} {network} {address}")),
                    "{network}: {address} has two owners"
                );
            }
        }
    }
    println!(
        "the status of {} pods agrees with `ip`: names, interfaces, addresses and MACs",
        pods.len()
    );
    Ok(())
}

/// Returns the first address of a pod in entry `at` of its status. The default network is entry 0.
pub(crate) fn address(cluster: &Cluster, pod: &str, at: usize) -> Result<String> {
    let pod = super::get(cluster, &["pod", pod])?;
    let status = pods::network_status(&pod);
    let address = status.get(at).and_then(|entry| entry["ips"][0].as_str());
    Ok(address
        .with_context(|| format!("network {at} has no address: {status:?}"))?
        .to_owned())
}

/// Runs a command that prints JSON in a pod's network namespace, and returns its parsed output.
pub(crate) fn in_pod(cluster: &Cluster, node: Node, pod: &str, command: &[&str]) -> Result<Value> {
    run(cluster, node, pod, &pids(cluster, node)?, command)
}

/// Returns a command that runs `words` in a pod's network namespace.
pub(crate) fn command(cluster: &Cluster, node: Node, pod: &str, words: &[&str]) -> Result<Command> {
    enter(cluster, node, pod, &pids(cluster, node)?, words)
}

fn run(
    cluster: &Cluster,
    node: Node,
    pod: &str,
    pids: &BTreeMap<String, String>,
    command: &[&str],
) -> Result<Value> {
    let shown = sh::read(&mut enter(cluster, node, pod, pids, command)?)?;
    serde_json::from_str(&shown).with_context(|| format!("parse {shown:?} of {pod}"))
}

fn enter(
    cluster: &Cluster,
    node: Node,
    pod: &str,
    pids: &BTreeMap<String, String>,
    command: &[&str],
) -> Result<Command> {
    let (_, pid) = running(cluster, node, pod, pids)?;
    cluster.on(
        node,
        [&["nsenter", "--target", &pid, "--net"], command].concat(),
    )
}

/// Returns the ID of a pod's running sandbox.
pub(crate) fn sandbox(cluster: &Cluster, node: Node, pod: &str) -> Result<String> {
    running(cluster, node, pod, &pids(cluster, node)?).map(|(id, _)| id)
}

/// Returns the ID of a pod's running sandbox and the ID of its process. `pids` are those of the node.
fn running(
    cluster: &Cluster,
    node: Node,
    pod: &str,
    pids: &BTreeMap<String, String>,
) -> Result<(String, String)> {
    for id in pods::sandboxes_of(cluster, node, pod)? {
        if let Some(pid) = pids.get(&id) {
            return Ok((id, pid.clone()));
        }
    }
    bail!("{pod} has no running sandbox")
}

/// Maps the IDs of the sandboxes on a node to their process IDs.
fn pids(cluster: &Cluster, node: Node) -> Result<BTreeMap<String, String>> {
    let tasks = sh::read(&mut cluster.on(node, ["ctr", "-n", "k8s.io", "tasks", "ls"])?)?;
    let task = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    Ok(tasks.lines().skip(1).filter_map(task).collect())
}

fn addresses(status: &[Value]) -> impl Iterator<Item = (&Value, &str)> {
    status.iter().flat_map(|entry| {
        texts(&entry["ips"])
            .into_iter()
            .map(move |address| (entry, address))
    })
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

impl Seen {
    fn of(
        cluster: &Cluster,
        node: Node,
        pod: &Value,
        pids: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let name = pod["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let links = run(cluster, node, &name, pids, &["ip", "-j", "addr"])?;
        Ok(Self {
            name,
            status: pods::network_status(pod),
            links,
        })
    }

    /// Returns a line for each difference between the pod's status and its interfaces.
    fn differences(&self, networks: &[String], pod_ip: &Value) -> Vec<String> {
        let names: Vec<&str> = self
            .status
            .iter()
            .filter_map(|entry| entry["name"].as_str())
            .collect();
        let mut wrong = Vec::new();
        if names != networks {
            wrong.push(format!("networks {names:?}"));
        }
        let is_first = |(at, entry): (usize, &Value)| entry["default"] == (at == 0);
        if !self.status.iter().enumerate().all(is_first)
            || self.status.first().is_none_or(|it| it["ips"][0] != *pod_ip)
        {
            wrong.push(format!(
                "the default network is not the one of {pod_ip}: {:?}",
                self.status
            ));
        }
        wrong.extend(
            self.status
                .iter()
                .filter_map(|entry| difference(entry, &self.links)),
        );
        let entries = self.status.len();
        let links = self.links.as_array().map_or(0, |links| {
            links.iter().filter(|link| link["ifname"] != "lo").count()
        });
        if links != entries {
            wrong.push(format!("{links} interfaces and {entries} entries"));
        }
        wrong
    }
}

/// Returns the difference between a status entry and its interface; `None` if they agree.
fn difference(entry: &Value, links: &Value) -> Option<String> {
    let link = links
        .as_array()
        .into_iter()
        .flatten()
        .find(|link| link["ifname"] == entry["interface"]);
    let Some(link) = link else {
        return Some(format!("no interface {}", entry["interface"]));
    };
    let shown = link["addr_info"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|address| address["scope"] == "global");
    let shown: BTreeSet<&str> = shown
        .filter_map(|address| address["local"].as_str())
        .collect();
    let is_same = shown == texts(&entry["ips"]).into_iter().collect()
        && link["address"] == entry["mac"]
        && (entry["mtu"].is_null() || link["mtu"] == entry["mtu"])
        && link["operstate"] != "DOWN";
    (!is_same).then(|| format!("{entry} is {link}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_differs_from_its_interface_by_address_mac_and_mtu() {
        let address = |scope: &str, local: &str| json!({"scope": scope, "local": local});
        let addresses = [address("global", "192.0.2.1"), address("link", "fe80::1")];
        let links = json!([{"ifname": "net1", "address": "02::1", "mtu": 1500, "operstate": "UP", "addr_info": addresses}]);
        let entry = |ifname: &str, ip: &str, mac: &str, mtu: Value| json!({"interface": ifname, "ips": [ip], "mac": mac, "mtu": mtu});
        let is_same = |entry: Value| difference(&entry, &links).is_none();
        assert!(is_same(entry("net1", "192.0.2.1", "02::1", json!(1500))));
        assert!(is_same(entry("net1", "192.0.2.1", "02::1", Value::Null)));
        assert!(!is_same(entry("net2", "192.0.2.1", "02::1", Value::Null)));
        assert!(!is_same(entry("net1", "192.0.2.2", "02::1", Value::Null)));
        assert!(!is_same(entry("net1", "192.0.2.1", "02::2", Value::Null)));
        assert!(!is_same(entry("net1", "192.0.2.1", "02::1", json!(1400))));
    }
}
