//! IPv6 addresses of pods that the kernel's duplicate address detection finds on another host after ADD.

use super::await_true;
use super::metrics::{scrape, value};
use super::reports::events;
use super::socket::Served;
use crate::json;
use braid_core::k8s::NETWORKS;
use std::path::Path;
use std::time::Duration;

#[test]
fn an_address_that_detection_finds_on_another_host_later_is_one_event_on_the_pod() {
    let Some(node) = Served::new("duplicate", 211) else {
        return;
    };
    let sandbox = &node.pair.world.sandbox;
    let (host, far) = (sandbox.host(), sandbox.pod("far"));
    let config = json!({
        "cniVersion": "1.0.0",
        "type": "macvlan",
        "master": "par0",
        "ipam": {"type": "static", "addresses": [{"address": "fd41::5/64"}]},
    });
    let nad = json!({"config": config.to_string()});
    node.pair.world.create_nad("lan6", &nad);
    let copy = "/var/lib/braid/networks/duplicate_lan6.json";
    await_true("the copy of the network", || Path::new(copy).exists());
    // Without a carrier, the detection does not begin.
    let other = far.path().display();
    host.run(&format!(
        "ip link add par0 type veth peer name far0 netns {other}"
    ));
    host.run("ip link set par0 up");
    far.run("ip addr add fd41::5/64 dev far0 nodad");
    let pod = node.pod("p", &json!({NETWORKS: "lan6"}));
    pod.call.add().result();
    let count = || value(&scrape(), "braid_address_conflicts_total");
    assert_eq!(count(), Some(0.0));
    far.run("ip link set far0 up");
    let has_failed = || {
        let links = pod.ns.list("ip -j -6 addr show dev net1");
        let mut addresses = links[0]["addr_info"].as_array().expect("addresses").iter();
        addresses.any(|one| one["local"] == "fd41::5" && one["dadfailed"] == true)
    };
    await_true("the end of the detection", has_failed);
    let found = || {
        let mut events = events(&node, &pod);
        events.retain(|event| event[0] == "AddressInUse");
        events
    };
    await_true("an event", || !found().is_empty());
    let [[_, note]] = &found()[..] else {
        panic!("{:?}", found());
    };
    for words in ["fd41::5", "net1", "lan6", "another host"] {
        assert!(note.contains(words), "{note}");
    }
    // The next comparisons find the same failure.
    for _ in 0..2 {
        host.run("ip link add other0 type veth peer name other1");
        host.run("ip link del other0");
        std::thread::sleep(Duration::from_secs(2));
    }
    assert_eq!((found().len(), count()), (1, Some(1.0)));
    pod.call.del().ok();
    host.run("ip link del par0");
}
