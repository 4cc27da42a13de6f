//! The status that the agent writes beside the kernel work of a call.

use super::await_true;
use super::socket::{Cut, Pod, SOCKET, Served, asks};
use crate::{Value, annotations, json, uid};
use braid_core::k8s::{NETWORK_STATUS, NETWORKS};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Log of the system calls of a plugin call.
const TRACE: &str = "/run/trace";

fn status(node: &Served, pod: &Pod) -> Value {
    annotations(&node.pair.world.get("pod", &pod.name))[NETWORK_STATUS].clone()
}

#[test]
fn the_status_is_sent_before_the_first_link_is_made_and_written_before_the_answer() {
    let Some(node) = Served::new("status-beside", 161) else {
        return;
    };
    let pod = node.pod("web", &asks());
    let traced = format!("strace -f -s 64 -o {TRACE} -e trace=sendto,sendmsg,write,writev");
    let call = pod.call.clone().under(&traced);
    call.add().result();
    assert!(
        status(&node, &pod)
            .as_str()
            .is_some_and(|text| text.contains("net1"))
    );
    let trace = fs::read_to_string(TRACE).expect("a trace");
    let line = |words: &str| {
        let found = trace.lines().position(|line| line.contains(words));
        found.unwrap_or_else(|| panic!("no {words} in {trace}"))
    };
    let [begun, made] = ["\"publish {", "RTM_NEWLINK"].map(line);
    assert!(begun < made, "{trace}");
    pod.call.del().ok();
    assert_eq!(node.requests(), [""; 0]);
}

#[test]
fn a_failed_add_takes_its_status_back() {
    let Some(node) = Served::new("status-back", 162) else {
        return;
    };
    // Only the kernel finds the value wrong, after the status was sent.
    let tuning = json!({"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.forwarding": "none"}});
    let lan = json!({"type": "bridge", "bridge": "lan1", "ipam": {"type": "host-local", "subnet": "10.162.129.0/24"}});
    let config = json!({"cniVersion": "1.0.0", "plugins": [lan, tuning]});
    let world = &node.pair.world;
    world.create_nad("wrong", &json!({"config": config.to_string()}));
    let other = json!([{"name": "other/writer", "interface": "net7"}]).to_string();
    let pod = node.pod("web", &json!({NETWORKS: "wrong", NETWORK_STATUS: other}));
    pod.call.add().error();
    await_true("the status, and its end", || {
        let mut written = node.requests_of_agent();
        written.retain(|request| request == "patch pods");
        written.len() == 2
    });
    let found = status(&node, &pod);
    let text = found.as_str().unwrap_or("[]");
    let entries: Value = serde_json::from_str(text).expect("JSON");
    let entries = entries.as_array().expect("a list");
    assert!(
        entries.len() == 1 && entries[0]["interface"] == "net7",
        "{text}"
    );
    pod.call.del().ok();
    assert_eq!(node.requests(), [""; 0]);
}

#[test]
fn a_withdrawal_during_an_outage_of_the_api_server_is_made_after_it() {
    let Some(node) = Served::new("status-outage", 163) else {
        return;
    };
    let pod = node.pod("web", &asks());
    pod.call.add().result();
    node.await_status(&pod, &["eth0", "net1"]);
    let object = node.pair.world.get("pod", &pod.name);
    let published = status(&node, &pod);
    let entries: Value = serde_json::from_str(published.as_str().expect("text")).expect("JSON");
    // The request of a failed ADD that read an empty status.
    let withdrawal = json!({
        "pod": {"namespace": node.pair.world.namespace, "name": pod.name},
        "uid": uid(&object),
        "container_id": entries[0]["io.braid/container"],
        "seen": null,
    });
    let outage = Cut::new(&node.pair.world);
    let mut stream = UnixStream::connect(SOCKET).expect("the agent listens");
    writeln!(stream, "withdraw {withdrawal}").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("\nunknown "), "{answer}");
    drop(outage);
    node.await_status(&pod, &[]);
    pod.call.del().ok();
}
