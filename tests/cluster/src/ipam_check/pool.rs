//! The pool of the check, and its pods with their addresses.

use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node, sh};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const APP: &str = pods::IPAM;
pub(super) const NETWORK: &str = "ipam-lan";
pub(super) const RANGE: &str = "198.18.40.0/24";
const POOL: &str = "198.18.40.0-24";
/// Longest wait for the entries of pods that are gone.
pub(super) const PAYMENT: Duration = Duration::from_secs(20);
/// Longest wait for held addresses: a node gives them back after a minute.
pub(super) const IDLE: Duration = Duration::from_secs(100);

/// A pod: its node, and its address in the network.
pub(super) type Pods = BTreeMap<String, (Node, String)>;

/// Returns the address of each pod. Fails if two have the same.
pub(super) fn addresses(cluster: &Cluster) -> Result<Pods> {
    let nodes = cluster.nodes()?;
    let (mut all, mut owners) = (Pods::new(), BTreeMap::new());
    for pod in pods::list(cluster, APP)? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let status = pods::network_status(&pod);
        let entry = status.get(1).and_then(|entry| entry["ips"][0].as_str());
        let address = entry.with_context(|| format!("{name} has no address"))?;
        let other = owners.insert(address.to_owned(), name.to_owned());
        ensure!(other.is_none(), "{address} of {name} and {other:?}");
        let node = nodes
            .iter()
            .find(|node| pod["spec"]["nodeName"] == node.to_string());
        let node = node.with_context(|| format!("{name} is on no node"))?;
        all.insert(name.to_owned(), (*node, address.to_owned()));
    }
    println!("{} addresses, none twice", owners.len());
    Ok(all)
}

pub(super) fn pool(cluster: &Cluster) -> Result<Value> {
    let get = ["get", "ippools", POOL, "-n", "kube-system", "-o", "json"];
    let text = sh::read(&mut cluster.kubectl(get))?;
    serde_json::from_str(&text).context("parse the pool")
}

/// Returns the addresses that the pool has for containers.
pub(super) fn of_containers(cluster: &Cluster) -> Result<Vec<String>> {
    let pool = pool(cluster)?;
    let entries = pool["spec"]["allocations"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let entries = entries.iter().filter(|(_, entry)| {
        let id = entry["id"].as_str().unwrap_or_default();
        !id.starts_with("braid:")
    });
    let mut addresses: Vec<String> = entries.map(|(at, _)| format!("198.18.40.{at}")).collect();
    addresses.sort_unstable();
    Ok(addresses)
}
