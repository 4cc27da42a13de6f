//! What calls hand to the agent: events about pods, and the status of pods that request nothing.

use super::await_true;
use super::socket::{Cut, Pod, Served, asks};
use crate::{Value, json};

/// Returns the events of the namespace that `selector` selects.
pub(super) fn listed(node: &Served, selector: &str) -> Vec<Value> {
    let world = &node.pair.world;
    let selector = format!("--field-selector={selector}");
    let kind = "events.v1.events.k8s.io";
    let list = ["get", kind, "-o", "json", "-n", &world.namespace, &selector];
    let list: Value = serde_json::from_str(&world.server.kubectl(&list, None)).expect("JSON");
    list["items"].as_array().expect("a list").clone()
}

/// Returns reason and note of each event about a pod, in alphabetical order.
pub(super) fn events(node: &Served, pod: &Pod) -> Vec<[String; 2]> {
    let mut found = Vec::new();
    for event in listed(node, &format!("regarding.name={}", pod.name)) {
        found.push(["reason", "note"].map(|key| event[key].as_str().unwrap_or("").to_owned()));
    }
    found.sort();
    found
}

#[test]
fn the_agent_publishes_an_event_for_each_interface_of_a_pod() {
    let Some(node) = Served::new("reports-events", 121) else {
        return;
    };
    let pod = node.pod("web", &asks());
    let addresses = |result: &Value| {
        result["ips"][0]["address"]
            .as_str()
            .expect("one")
            .to_owned()
    };
    let eth0 = addresses(&pod.call.add().result());
    let of_eth0 = format!("eth0 [{eth0}] from pods");
    let of_net1 = "net1 [10.121.128.2/24] from reports-events/lan".to_owned();
    let event = |reason: &str, verb: &str, of: &str| [reason.to_owned(), format!("{verb} {of}")];
    let added = [
        event("AddedInterface", "Add", &of_eth0),
        event("AddedInterface", "Add", &of_net1),
    ];
    await_true("the events of ADD", || events(&node, &pod) == added);
    pod.call.del().ok();
    pod.call.del().ok();
    let all = [
        &added[..],
        &[
            event("RemovedInterface", "Remove", &of_eth0),
            event("RemovedInterface", "Remove", &of_net1),
        ],
    ];
    await_true("the events of DEL", || events(&node, &pod) == all.concat());
    // Neither call has sent a request.
    assert_eq!(node.requests(), [""; 0]);
}

#[test]
fn a_refusal_that_the_runtime_repeats_is_one_event() {
    let Some(node) = Served::new("reports-refusal", 122) else {
        return;
    };
    let absent = node.pod("web", &json!({braid_core::k8s::NETWORKS: "nowhere"}));
    for _ in 0..3 {
        absent.call.add().refused(7, &["reports-refusal/nowhere"]);
    }
    await_true("an event", || !events(&node, &absent).is_empty());
    let found = events(&node, &absent);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0][0], "NoNetworkFound");
    assert_eq!(node.requests(), [""; 0]);
}

#[test]
fn a_pod_that_requests_nothing_does_not_wait_for_its_status() {
    let Some(node) = Served::new("reports-plain", 123) else {
        return;
    };
    let pod = node.pod("web", &json!({})).passing(&json!({}));
    let cut = Cut::new(&node.pair.world);
    let answer = pod.call.add();
    assert_eq!(answer.stderr, "", "the call owes nothing");
    answer.result();
    drop(cut);
    node.await_status(&pod, &["eth0"]);
    pod.call.del().ok();
}

#[test]
fn a_failed_add_is_an_event_with_the_network_and_the_reason() {
    let Some(node) = Served::new("reports-failed", 124) else {
        return;
    };
    let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "absent0"});
    let world = &node.pair.world;
    world.create_nad("broken", &json!({"config": config.to_string()}));
    let pod = node.pod("web", &json!({braid_core::k8s::NETWORKS: "broken"}));
    let error = pod.call.add().error();
    await_true("an event", || !events(&node, &pod).is_empty());
    let [reason, note] = events(&node, &pod).remove(0);
    assert_eq!(reason, "FailedAddInterface");
    // Only the network that failed is named, and not the default network.
    let is_named = note.starts_with("network reports-failed/broken: ");
    assert!(is_named && note.contains("absent0"), "{note} of {error:?}");
    pod.call.del().ok();
    assert_eq!(node.requests(), [""; 0]);
}
