//! Annotations and networks of somebody who means harm: a clear error in bounded time, and nothing is run or written.

use super::{NETWORKS, Node, calls, json, spy};
use braid_core::k8s::DEFAULT_NETWORK;
use std::time::{Duration, Instant};

/// More than any such call takes, on a busy machine too.
const BOUND: Duration = Duration::from_secs(20);
/// Longest error that a person reads.
const READABLE: usize = 2000;

/// That an ADD with this annotation is refused, and changes nothing.
#[track_caller]
fn refuses(node: &Node, pod: &str, annotation: &str, value: &str) {
    let before = node.world.sandbox.state();
    let pod = node.annotated(pod, &json!({annotation: value}));
    let start = Instant::now();
    let error = pod.call.add().error();
    let shown: String = value.chars().take(60).collect();
    assert!(start.elapsed() < BOUND, "{shown}: {:?}", start.elapsed());
    assert!([7, 4].contains(&error.code) && error.msg.len() < READABLE, "{shown}: {error:?}");
    assert_eq!((calls(), node.entries(&pod)), (vec![], vec![]), "{shown}");
    node.assert_nothing_left(&pod);
    node.world.sandbox.end(&pod.ns);
    before.of_network().assert_same(&node.world.sandbox.state().of_network());
}

#[test]
fn s8_hostile_annotations_are_refused_and_nothing_is_run() {
    let Some(node) = Node::new("hostile", &[("a", spy("a", &json!({})))]) else { return };
    Node::set_default(&spy("default", &json!({})));
    let long = "x".repeat(250 * 1024);
    let item = |key: &str, value: &str| json!([{"name": "a", key: value}]).to_string();
    for (number, text) in [
        "..".to_owned(),
        "../a".to_owned(),
        "a/../b".to_owned(),
        "/etc/passwd".to_owned(),
        "a@../x".to_owned(),
        "a@x/y".to_owned(),
        "a@net%d".to_owned(),
        item("name", "a\0b"),
        item("name", "../../kube-system/secrets/x"),
        item("namespace", ".."),
        item("namespace", "a/pods/web?x="),
        item("interface", "x\0"),
        item("interface", "../../../etc"),
        item("ipam-claim-reference", "../x"),
        long.clone(),
        item("name", &long),
        "a,".repeat(10_000),
        format!("[{}{{}}]", "{},".repeat(10_000)),
        json!([{"name": "a", "ips": vec!["10.0.0.1"; 10_000]}]).to_string(),
        "[".repeat(100_000),
        format!(
            "{}1{}",
            r#"[{"name":"a","cni-args":{"x":"#.to_owned() + &"[".repeat(50_000),
            "]".repeat(50_000) + "}}]"
        ),
    ]
    .iter()
    .enumerate()
    {
        let annotation = if number % 5 == 3 { DEFAULT_NETWORK } else { NETWORKS };
        refuses(&node, &format!("web{number}"), annotation, text);
    }
}

#[test]
fn hostile_networks_are_refused_and_nothing_is_run() {
    let deep = format!(
        r#"{{"cniVersion":"1.0.0","name":"x","type":"spy","x":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let many = json!({"cniVersion": "1.0.0", "name": "x", "plugins": vec![json!({"type": "spy"}); 10_000]});
    let conf = |key: &str, value: &str| {
        let mut conf = spy("x", &json!({}));
        conf[key] = value.into();
        conf
    };
    let networks = [
        ("type-up", conf("type", "../spy")),
        ("type-path", conf("type", "/run/cni-bin/spy")),
        ("type-dots", conf("type", "..")),
        ("type-nul", conf("type", "spy\0")),
        ("type-none", conf("type", "")),
        ("name-up", conf("name", "../../../../etc/x")),
        ("name-path", conf("name", "a/b")),
        ("name-nul", conf("name", "a\0b")),
        ("version", conf("cniVersion", "9.9.9")),
        ("deep", json!(deep)),
        ("many", many),
        ("broken", json!("{")),
        ("list", json!("[]")),
    ];
    let Some(node) = Node::new("hostile-nads", &networks) else { return };
    Node::set_default(&spy("default", &json!({})));
    for (name, _) in networks {
        let pod = node.pod(name, name);
        let start = Instant::now();
        let error = pod.call.add().error();
        assert!(start.elapsed() < BOUND && error.msg.len() < READABLE, "{name}: {:?}", start.elapsed());
        assert!(error.msg.contains(&format!("network hostile-nads/{name}")), "{name}: {error:?}");
        assert_eq!(calls(), [""; 0], "{name}: {error:?}");
        node.assert_nothing_left(&pod);
    }
}

#[test]
fn a_network_of_a_mebibyte_is_attached_in_bounded_time() {
    let Some(node) = Node::new("large", &[("large", spy("large", &json!({"padding": "x".repeat(1 << 20)})))]) else {
        return;
    };
    let pod = node.pod("web", "large");
    let start = Instant::now();
    pod.call.add().result();
    pod.call.del().ok();
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    assert_eq!(calls(), ["ADD large net1 spy", "DEL large net1 spy"]);
    node.assert_nothing_left(&pod);
}
