//! DEL of a pod whose records are lost or damaged, including the records of foreign plugins. braid
//! finds the attachments in the API and on the node.

use super::{Node, Pod, Value, bridged, calls, json, spy};
use crate::write_kubeconfig;
use std::fs;

/// Overwrites the records of a pod's container with `text`, or deletes the records if `text` is
/// `None`.
fn damage(pod: &Pod, text: Option<&str>) {
    let _ = fs::remove_dir_all("/var/lib/braid");
    let folder = format!("/run/braid/attachments/{}", pod.name);
    match text {
        None => fs::remove_dir_all(folder).expect("records"),
        Some(text) => fs::write(format!("{folder}/eth0:pods:braid.json"), text).expect("a record"),
    }
}

fn networks() -> [(&'static str, Value); 3] {
    [
        ("lan", bridged(1)),
        ("a", spy("a", &json!({"key": "value"}))),
        ("b", spy("b", &json!({}))),
    ]
}

#[test]
fn del_without_a_record_finds_every_attachment_and_a_repeat_asks_no_api() {
    let Some(node) = Node::new("lost-record", &networks()) else {
        return;
    };
    for text in [None, Some(""), Some("{"), Some("null"), Some("[]")] {
        let pod = node.pod(
            &format!("web{}", text.map_or(0, |text| text.len() + 1)),
            "a,lan@lan0,b",
        );
        let result = pod.call.add().result();
        calls();
        damage(&pod, text);
        let before = node.requests().len();
        pod.call.clone().prev(&result).del().ok();
        assert_eq!(calls(), ["DEL b net3 spy", "DEL a net1 spy"], "{text:?}");
        node.assert_nothing_left(&pod);
        let asked = node.requests().split_off(before);
        let nads = "get network-attachment-definitions";
        assert_eq!(asked, ["get pods", nads, nads, nads], "{text:?}");
        pod.call.del().ok();
        assert_eq!(
            (calls(), node.requests().len()),
            (Vec::new(), before + 4),
            "{text:?}"
        );
    }
}

#[test]
fn links_in_the_containers_namespace_are_found_without_a_host_end() {
    let addressed = |address: &str| json!({"type": "static", "addresses": [{"address": address}]});
    let macvlan = |name: &str, address: &str| {
        let plugin = json!({"type": "macvlan", "master": "lan", "ipam": addressed(address)});
        json!({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]})
    };
    let Some(node) = Node::new(
        "lost-inside",
        &[
            ("red", macvlan("red", "10.7.0.2/24")),
            networks()[1].clone(),
        ],
    ) else {
        return;
    };
    node.world
        .sandbox
        .outside("lan", "192.0.2.1/24", "192.0.2.2/24");
    Node::set_default(&macvlan("default", "10.6.0.2/24"));
    let pod = node.pod("web", "red,a");
    pod.call.add().result();
    calls();
    damage(&pod, None);
    pod.call.del().ok();
    assert_eq!(calls(), ["DEL a net2 spy"]);
    node.assert_nothing_left(&pod);
}

#[test]
fn without_the_api_del_uses_the_nodes_state() {
    let Some(node) = Node::new("lost-down", &networks()) else {
        return;
    };
    for text in [None, Some("")] {
        let pod = node.pod(if text.is_some() { "damaged" } else { "missing" }, "lan");
        pod.call.add().result();
        damage(&pod, text);
        let nowhere = json!({"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true});
        write_kubeconfig(&nowhere, &json!({"token": "some-token"}));
        let answer = pod.call.del();
        answer.ok();
        assert!(
            answer.stderr.contains("its networks are not known"),
            "{}",
            answer.stderr
        );
        node.assert_nothing_left(&pod);
        let again = pod.call.del();
        again.ok();
        assert!(!again.stderr.contains("not known"), "{}", again.stderr);
        node.world
            .kubeconfig(&json!({"token": node.world.server.token}));
    }
}

#[test]
fn an_unresponsive_api_does_not_fail_del() {
    let Some(node) = Node::new("lost-hangs", &networks()) else {
        return;
    };
    let pod = node.pod("web", "lan");
    pod.call.add().result();
    damage(&pod, None);
    // This server accepts connections but never answers.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("https://{}", deaf.local_addr().expect("an address"));
    write_kubeconfig(
        &json!({"server": server, "insecure-skip-tls-verify": true}),
        &json!({"token": "some-token"}),
    );
    let answer = pod.call.del();
    answer.ok();
    assert!(
        answer.stderr.contains("its networks are not known"),
        "{}",
        answer.stderr
    );
    node.assert_nothing_left(&pod);
}

#[test]
fn a_pod_of_the_same_name_with_another_uid_is_ignored() {
    let Some(node) = Node::new("lost-uid", &networks()) else {
        return;
    };
    let pod = node.pod("web", "lan");
    pod.call.add().result();
    damage(&pod, None);
    node.world
        .server
        .kubectl(&["delete", "pod", "web", "-n", "lost-uid", "--now"], None);
    node.world
        .create_pod("web", &json!({braid_core::k8s::NETWORKS: "a,b"}));
    let answer = pod.call.del();
    answer.ok();
    assert!(
        answer.stderr.contains("the call is for uid"),
        "{}",
        answer.stderr
    );
    assert_eq!(calls(), [""; 0]);
    node.assert_nothing_left(&pod);
}

#[test]
fn a_failed_attachment_is_retried_and_does_not_stop_the_others() {
    let Some(node) = Node::new("lost-fails", &networks()) else {
        return;
    };
    let pod = node.pod("web", "a,lan,b");
    pod.call.add().result();
    calls();
    damage(&pod, None);
    let server = node.world.server;
    server.kubectl(
        &[
            "delete",
            "network-attachment-definition",
            "b",
            "-n",
            "lost-fails",
        ],
        None,
    );
    fs::write("/run/fail.a.DEL", "").expect("a file");
    pod.call.del().refused(107, &["spy was told to fail"]);
    assert_eq!(calls(), ["DEL a net1 spy"]);
    assert_eq!(pod.ns.link_names(), [""; 0]);
    fs::remove_file("/run/fail.a.DEL").expect("a file");
    let asked = node.requests().len();
    pod.call.del().ok();
    assert_eq!(
        (calls(), node.requests().len()),
        (vec!["DEL a net1 spy".to_owned()], asked),
        "it was recorded"
    );
    node.assert_nothing_left(&pod);
}
