//! Networks that take devices of a resource.

use super::{Edited, events, other_addresses, stop};
use crate::agent::await_true;
use crate::annotations;
use crate::json;
use crate::kubelet::{Kubelet, Manner, pod as resources};
use braid_core::k8s::NETWORK_STATUS;
use braid_tests::Value;
use std::fs;

const NET: u8 = 221;
const DEVINFO: &str = "/var/run/k8s.cni.cncf.io/devinfo/dp";

/// Creates the network `vf`, whose pods get a device of `a.example/vf`, with information about two
/// devices.
fn create_network(node: &Edited) {
    let ipam = json!({"type": "host-local", "subnet": format!("10.{NET}.200.0/24")});
    let config = json!({
        "cniVersion": "1.0.0",
        "type": "bridge",
        "bridge": "vf0",
        "capabilities": {"ips": true, "CNIDeviceInfoFile": true},
        "ipam": ipam,
    });
    let world = &node.node.pair.world;
    let annotations = json!({"k8s.v1.cni.cncf.io/resourceName": "a.example/vf"});
    let metadata = json!({"name": "vf", "annotations": annotations});
    let [api, kind] = ["k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition"];
    let spec = json!({"config": config.to_string()});
    world.create(json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}));
    fs::create_dir_all(DEVINFO).expect("a folder");
    for id in ["0000:00:01.1", "0000:00:01.2"] {
        let info = json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": id}});
        let path = format!("{DEVINFO}/a.example-vf-{id}-device.json");
        fs::write(path, info.to_string()).expect("written");
    }
}

#[test]
fn an_edit_gives_no_device_twice_and_a_changed_network_keeps_its_own() {
    let Some(node) = Edited::new("edit-devices", NET) else {
        return;
    };
    create_network(&node);
    let ids: &[&str] = &["0000:00:01.1", "0000:00:01.2"];
    let has = vec![resources(
        "edit-devices",
        "web",
        &[("a.example/vf", ids)],
        &[],
    )];
    let _kubelet = Kubelet::start(has, Manner::default());
    let pod = node.start("web", "vf");
    let world = &node.node.pair.world;
    let devices = || {
        let object = world.get("pod", &pod.name);
        let status = annotations(&object)[NETWORK_STATUS].as_str();
        let entries: Vec<Value> = serde_json::from_str(status.unwrap_or("[]")).expect("JSON");
        let mut found = Vec::new();
        for entry in entries {
            let id = &entry["device-info"]["pci"]["pci-address"];
            if let (Some(ifname), Some(id)) = (entry["interface"].as_str(), id.as_str()) {
                let number = id.rsplit('.').next().unwrap_or_default();
                found.push(format!("{ifname}={number}"));
            }
        }
        found.sort();
        found.join(" ")
    };
    let index = |link: &str| pod.ns.the_link(link)["ifindex"].clone();
    assert_eq!(devices(), "net1=1");
    let first = index("net1");
    let await_devices = |networks: &Value, expected: &str| {
        node.annotate(&pod, &networks.to_string());
        await_true(expected, || devices() == expected);
    };
    let [one, two] = ["net1", "net2"].map(|ifname| json!({"name": "vf", "interface": ifname}));
    await_devices(&json!([one, two]), "net1=1 net2=2");
    assert_eq!(index("net1"), first);
    // A third network, and no device for it.
    node.annotate(&pod, "vf,vf,vf");
    await_true("NetworkRefused", || {
        let told = events(&node.node, &pod);
        let is_it =
            |event: &[String; 2]| event[0] == "NetworkRefused" && event[1].contains("a.example/vf");
        told.iter().any(is_it)
    });
    let second = index("net2");
    // A changed address is a new interface with the same device.
    let moved = json!({"name": "vf", "interface": "net2", "ips": [format!("10.{NET}.200.77/24")]});
    node.annotate(&pod, &json!([one, moved]).to_string());
    await_true("the address", || {
        other_addresses(&pod).contains(&format!("10.{NET}.200.77"))
    });
    assert_ne!(index("net2"), second);
    await_true("the status", || devices() == "net1=1 net2=2");
    assert_eq!(index("net1"), first);
    // A device that is free again goes to the next network.
    await_devices(&json!([moved]), "net2=2");
    await_devices(&json!([moved, one]), "net1=1 net2=2");
    stop(&pod);
}
