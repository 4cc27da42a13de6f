//! Claims that can't work: each gets an event with the reason, and its pod does not become Ready.

use super::manifests::{INTERFACE, RATE, config, devices, pod, reachable, share, template};
use super::objects::{await_event, delete, get, ready};
use anyhow::{Result, ensure};
use braid_testbed::{Cluster, Node};
use serde_json::{Value, json};

/// Reason of the kubelet's event about a claim that can't be prepared.
const REASON: &str = "FailedPrepareDynamicResources";

/// Refuses parameters, names, and types that can't share a link.
pub(super) fn check(cluster: &Cluster, node: Node) -> Result<()> {
    let ip = json!(["198.18.1.50/24"]);
    let many = "x".repeat(16);
    for (name, keys, text) in [
        ("unknown-key", json!({"colour": "red"}), r#""colour""#),
        ("taken-name", json!({"interface": "eth0"}), r#""eth0""#),
        ("long-name", json!({"interface": many}), "interface"),
        (
            "master",
            json!({"network": {"type": "macvlan", "master": "eth0"}}),
            "master",
        ),
        ("type", json!({"network": {"type": "bridge"}}), "bridge"),
        ("no-network", json!({"nad": "none"}), "default/none"),
        ("address", json!({"ips": ["198.18.1.999"]}), "198.18.1.999"),
    ] {
        refused(cluster, node, name, &keys)?;
        await_event(cluster, name, REASON, text)?;
        await_event(cluster, name, REASON, r#"request "nic""#)?;
    }
    println!("parameters that can't work are refused with an event");
    beside(cluster, node, &ip)?;
    host_network(cluster, node)?;
    delete(cluster)
}

fn refused(cluster: &Cluster, node: Node, name: &str, keys: &Value) -> Result<()> {
    let devices = devices(&[share("nic", "eth1", "1M")], &[config(&[], keys)]);
    cluster.create(&[template(name, &devices), pod(name, node, &[name])])
}

/// Refuses an ipvlan beside a macvlan on one link, although this machine's kernel has no ipvlan.
fn beside(cluster: &Cluster, node: Node, ip: &Value) -> Result<()> {
    let first = devices(
        &[share("nic", "eth1", RATE.0)],
        &[config(&[], &reachable())],
    );
    cluster.create(&[
        template("macvlan", &first),
        pod("macvlan", node, &["macvlan"]),
    ])?;
    ready(cluster, node, "macvlan")?;
    let keys = json!({"interface": INTERFACE, "ips": ip, "network": {"type": "ipvlan"}});
    refused(cluster, node, "ipvlan", &keys)?;
    await_event(cluster, "ipvlan", REASON, "a link can't have both types")?;
    println!("ipvlan beside macvlan is refused");
    Ok(())
}

/// Refuses a pod in the node's network namespace.
fn host_network(cluster: &Cluster, node: Node) -> Result<()> {
    let devices = devices(&[share("nic", "eth1", "1M")], &[config(&[], &reachable())]);
    let mut pod = pod("host", node, &["host"]);
    pod["spec"]["hostNetwork"] = true.into();
    cluster.create(&[template("host", &devices), pod])?;
    await_event(cluster, "host", REASON, "hostNetwork")?;
    let pod = get(cluster, &["pod", "host"])?;
    ensure!(pod["status"]["phase"] == "Pending", "{}", pod["status"]);
    println!("a pod with hostNetwork is refused");
    Ok(())
}
