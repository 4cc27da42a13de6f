//! The examples of cluster-wide addresses in `docs/addresses.md`.

use super::Node;
use braid_tests::Value;
use braid_tests::page::blocks;
use std::fs;
use std::path::Path;

/// The documentation page.
const PAGE: &str = include_str!("../../../docs/addresses.md");

#[test]
fn the_examples_of_the_page_work() {
    let Some(node) = Node::new("whereabouts-examples") else {
        return;
    };
    node.alone();
    let host = &node.world.sandbox;
    host.run("ip link add eth1 up type veth peer name far");
    host.run("ip link set far up");
    let mut count = 0;
    for (number, example) in blocks(PAGE, "json").iter().enumerate() {
        let conf: Value = serde_json::from_str(example).expect("JSON");
        let ipam = &conf["ipam"];
        if ipam["type"] != "whereabouts" {
            continue;
        }
        let path = ipam["kubernetes"]["kubeconfig"].as_str();
        let path = Path::new(path.unwrap_or("/etc/cni/net.d/braid.d/kubeconfig"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::copy(&node.kubeconfig, path).expect("copied");
        let kind = conf["type"].as_str().unwrap_or_default().to_owned();
        let (_ns, call) = node.pod_of(&format!("p{number}"), &kind, conf);
        let result = call.add().result();
        call.check(&result).ok();
        call.del().ok();
        count += 1;
    }
    assert!(count >= 1);
    let namespace = &node.world.namespace;
    let kind = "overlappingrangeipreservations";
    let left = ["get", kind, "-n", namespace, "-o", "name"];
    assert_eq!(node.world.server.kubectl(&left, None), "");
}
