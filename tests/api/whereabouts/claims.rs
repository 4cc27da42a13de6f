//! IPAMClaims: addresses in a pool that outlive pods and nodes.

use super::{NAMESPACE, Node, reservations};
use crate::json;
use crate::pods::claims::{claim, delete, end, refers_to};
use crate::pods::{self, Pod};
use braid_core::k8s::NETWORKS;
use std::fs;

const POOL: &str = "10.204.0.0-29";
/// Kubeconfig of the network's account. The meta plugin has another.
const KUBECONFIG: &str = "/run/ipam.kubeconfig";

/// Returns a pod on a node of the cluster.
fn pod(node: &pods::Node, name: &str, networks: &str, on: &str) -> Pod {
    let made = node.world.create(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {NETWORKS: networks}},
        "spec": {"nodeName": on, "containers": [{"name": "c", "image": "none"}]},
    }));
    node.container(&made)
}

#[test]
fn a_claim_has_its_address_on_each_node_until_it_is_deleted() {
    let Some(plain) = Node::new("whereabouts-claim") else {
        return;
    };
    fs::copy(&plain.kubeconfig, KUBECONFIG).expect("copied");
    let entries = |node: &pods::Node| -> Vec<String> {
        let get = ["get", "ippools", POOL, "-n", NAMESPACE, "-o", "json"];
        let pool = node.world.server.kubectl(&get, None);
        let pool: braid_tests::Value = serde_json::from_str(&pool).expect("JSON");
        let entries = pool["spec"]["allocations"].as_object().expect("entries");
        let line = |(at, entry): (&String, &braid_tests::Value)| format!("{at} {}", entry["id"]);
        entries.iter().map(line).collect()
    };
    let config = json!({
        "cniVersion": "1.0.0",
        "name": "lan1",
        "type": "bridge",
        "bridge": "lan1",
        "ipam": {
            "type": "whereabouts",
            "range": "10.204.0.0/29",
            "kubernetes": {"kubeconfig": KUBECONFIG},
        },
    });
    let node = pods::Node::of(plain.world, &[("lan", config)]);
    let [here, there] = ["whereabouts-claim", "whereabouts-claim-2"];
    let second = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": there}});
    let server = node.world.server;
    server.kubectl(&["create", "-f", "-"], Some(&second));
    let object = claim(&node, "vm", "lan1");
    let entry = format!("1 \"claim:{}\"", crate::uid(&object));
    let refers = refers_to("lan", "vm");
    let first = pod(&node, "first", &refers, here);
    let result = first.call.add().result();
    assert_eq!(first.ns.addrs("net1"), ["10.204.0.1/29"]);
    first.call.check(&result).ok();
    assert_eq!(entries(&node), [&*entry]);
    let status = node.world.get("ipamclaim", "vm")["status"].clone();
    assert_eq!(status["ips"], json!(["10.204.0.1/29"]));
    end(&node, &first);
    let other = pod(&node, "other", "lan", here);
    other.call.add().result();
    assert_eq!(other.ns.addrs("net1"), ["10.204.0.2/29"]);
    other.call.gc(&[("other", "eth0")]).ok();
    assert_eq!(entries(&node), [&*entry, "2 \"other\""]);
    // The next pod is on another node.
    let folders = ["/run/braid", "/var/lib/braid/ipam"];
    let change = |from: &str, to: &str| {
        for folder in folders {
            fs::rename(folder, format!("{folder}-{to}")).expect("left");
            let _ = fs::rename(format!("{folder}-{from}"), folder);
        }
    };
    change(there, here);
    let next = pod(&node, "next", &refers, there);
    next.call.add().result();
    assert_eq!(next.ns.addrs("net1"), ["10.204.0.1/29"]);
    // It keeps the address without its claim.
    delete(&node, "vm");
    change(here, there);
    other.call.gc(&[("other", "eth0")]).ok();
    assert_eq!(entries(&node), [&*entry, "2 \"other\""]);
    change(there, here);
    end(&node, &next);
    change(here, there);
    other.call.gc(&[("other", "eth0")]).ok();
    assert_eq!(entries(&node), ["2 \"other\""]);
    let left = reservations(server);
    assert!(!left.contains("/10.204.0.1\n"), "{left}");
    other.call.del().ok();
    assert_eq!(entries(&node), [""; 0]);
}
