//! Statuses that are no longer true are corrected, and those of other programs stay.

use super::garbage::conf;
use super::metrics::{scrape, value};
use super::socket::{Pod, Served};
use super::{CONFLIST, await_true};
use crate::{Value, annotations, json};
use braid_core::k8s::{NETWORK_STATUS, NETWORKS};
use std::fs;

/// Key of braid's entries.
const CONTAINER: &str = "io.braid/container";
const COUNTER: &str = "braid_collected_total{kind=\"status\"}";

/// Creates a pod of the node's own network, and of `lan`.
fn pod(node: &Served, name: &str, status: Option<&Value>) -> Pod {
    let mut annotations = json!({NETWORKS: "lan"});
    if let Some(status) = status {
        annotations[NETWORK_STATUS] = status.to_string().into();
    }
    let mut pod = node.pod(name, &annotations);
    let conf = conf();
    for key in ["name", "plugins"] {
        pod.call = pod.call.with(key, conf[key].clone());
    }
    pod
}

fn status_of(node: &Served, pod: &Pod) -> Value {
    let object = node.pair.world.get("pod", &pod.name);
    let text = annotations(&object)[NETWORK_STATUS].as_str();
    serde_json::from_str(text.unwrap_or("null")).expect("JSON")
}

/// Writes a status in the place of another program.
fn overwrite(node: &Served, pod: &Pod, status: &Value) {
    node.annotate(pod, &format!("{NETWORK_STATUS}={status}"));
}

fn set_phase(node: &Served, pod: &Pod, phase: &str) {
    let world = &node.pair.world;
    let namespace = format!("--namespace={}", world.namespace);
    let patch = format!("--patch={}", json!({"status": {"phase": phase}}));
    let words = [
        "patch",
        "pod",
        &pod.name,
        &namespace,
        "--subresource=status",
        &patch,
    ];
    world.server.kubectl(&words, None);
}

#[test]
fn statuses_of_containers_that_are_gone_or_of_other_networks_are_corrected() {
    let Some(node) = Served::new("status-stale", 221) else {
        return;
    };
    await_true("conflist", || fs::exists(CONFLIST).is_ok_and(|is| is));
    let other = json!({"name": "other/writer", "interface": "net7"});
    let gone = pod(&node, "gone", None);
    gone.call.add().result();
    let mut status = status_of(&node, &gone);
    status.as_array_mut().expect("entries").push(other.clone());
    overwrite(&node, &gone, &status);
    let lost = pod(&node, "lost", None);
    lost.call.add().result();
    let whole = status_of(&node, &lost);
    assert_eq!(whole.as_array().map(Vec::len), Some(2), "{whole}");
    // A program wrote an older value back.
    overwrite(&node, &lost, &json!([whole[0], other]));
    // A pod of Multus, and one that has finished.
    let theirs = json!([{"name": "a", "interface": "eth0", "default": true}]);
    let foreign = pod(&node, "foreign", Some(&theirs));
    let own = json!([{"name": "a", "interface": "eth0", CONTAINER: "nobody"}]);
    let finished = pod(&node, "finished", Some(&own));
    set_phase(&node, &finished, "Succeeded");
    // A container that is about to be attached has a record, and no status yet.
    assert_eq!(value(&scrape(), COUNTER), Some(0.0));
    node.pair.world.sandbox.end(&gone.ns);

    await_true("the status of the other program alone", || {
        status_of(&node, &gone) == json!([other])
    });
    await_true("the whole status", || {
        let status = status_of(&node, &lost);
        let entries = status.as_array().expect("entries");
        entries.len() == 3
            && [&whole[0], &whole[1], &other]
                .iter()
                .all(|one| entries.contains(one))
    });
    await_true("the counter", || value(&scrape(), COUNTER) == Some(2.0));
    assert_eq!(status_of(&node, &foreign), theirs);
    assert_eq!(status_of(&node, &finished), own);
    lost.call.del().ok();
}
