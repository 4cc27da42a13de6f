//! Requests that need a new interface: addresses, a MAC, arguments of plugins.

use super::manifests::{APP, LAN, SERVED, WAN};
use super::matching::ensure_same;
use crate::running::{IN_PLACE, Pod};
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node, wait};
use serde_json::{Value, json};
use std::net::IpAddr;

/// Changes the requests of a pod to one of three networks. The others stay as they are.
pub(super) fn check(cluster: &Cluster, node: Node) -> Result<()> {
    let attached = [("net1", LAN), ("net2", WAN), ("net3", SERVED)];
    let request = |keys: &Value| {
        let mut wan = json!({"name": WAN});
        for (key, value) in keys.as_object().into_iter().flatten() {
            wan[key] = value.clone();
        }
        json!([{"name": LAN}, wan, {"name": SERVED}]).to_string()
    };
    let pod = Pod::start(cluster, node, ("plug-again", APP), &request(&json!({})))?;
    let mut before = pod.await_networks(&attached)?;
    let (mac, other) = ("02:00:5e:10:00:01", "02:00:5e:10:00:02");
    for keys in [
        json!({"ips": ["198.18.22.77/24"]}),
        json!({"ips": ["198.18.22.78/24"]}),
        json!({"ips": ["198.18.22.78/24"], "mac": mac}),
        json!({"ips": ["198.18.22.78/24"], "mac": other}),
        json!({"cni-args": {"colour": "blue"}}),
        json!({"cni-args": {"colour": "red"}}),
        json!({}),
    ] {
        pod.annotate(&request(&keys))?;
        // The names stay, so the index tells the old interface from the new one.
        let old = before.get("net2").map(|link| link.index);
        wait::eventually(IN_PLACE, || {
            let links = pod.links()?;
            let link = links.get("net2").context("no net2")?;
            ensure!(Some(link.index) != old, "net2 is as before, with {keys}");
            Ok(())
        })?;
        let after = pod.await_networks(&attached)?;
        ensure_same(&before, &after, &["eth0", "net1", "net3"])?;
        let net2 = &after["net2"];
        if let Some(wanted) = keys["mac"].as_str() {
            ensure!(net2.mac == wanted, "{keys}: {net2:?}");
        }
        if let Some(wanted) = keys["ips"][0].as_str() {
            let wanted: IpAddr = wanted.trim_end_matches("/24").parse()?;
            ensure!(net2.addresses == [wanted].into(), "{keys}: {net2:?}");
        }
        before = after;
    }
    println!("changed addresses, MACs and arguments attach one network again, and no other");
    Ok(())
}
