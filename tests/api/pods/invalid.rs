//! Invalid values in an annotation. Each makes the whole annotation invalid before any plugin runs.

use super::{NETWORKS, Node, calls, json, spy};
use braid_tests::Value;

/// Invalid annotations. Each has its requirement in docs/conformance.md and words of the expected
/// error.
const INVALID: &[(&str, &str, &str)] = &[
    ("n4", "Net_A", "item 1: \"Net_A\""),
    ("n4", r#"[{"name":"Net_A"}]"#, "item 1: name \"Net_A\""),
    ("s7", r#"[{"name":"a","ips":[]}]"#, "item 1: ips []"),
    (
        "s7",
        r#"[{"name":"a"},{"name":"a","ips":["1.2.3.300"]}]"#,
        "item 2: ips [\"1.2.3.300\"]",
    ),
    (
        "s7",
        r#"[{"name":"a","ips":["10.0.0.1/33"]}]"#,
        "item 1: ips",
    ),
    (
        "s12",
        r#"[{"name":"a","mac":"00:11:22:33:44:55:66:77"}]"#,
        "item 1: mac",
    ),
    (
        "s12",
        r#"[{"name":"a","mac":"00:00:00:00:fe:80:00:00:00:00:00:00:02:00:5e:10:00:00:00:01"}]"#,
        "item 1: mac",
    ),
    (
        "s14",
        r#"[{"name":"a","interface":"sixteen-letters-"}]"#,
        "item 1: interface",
    ),
    (
        "s14",
        r#"[{"name":"a","interface":"a/b"}]"#,
        "item 1: interface \"a/b\"",
    ),
    (
        "s14",
        r#"[{"name":"a","interface":"."}]"#,
        "item 1: interface \".\"",
    ),
    ("s14", "a,a@.", "item 2: \"a@.\""),
    (
        "s19",
        r#"[{"name":"a","portMappings":[]}]"#,
        "item 1: portMappings []",
    ),
    (
        "s19",
        r#"[{"name":"a","portMappings":[{"hostPort":0,"containerPort":80}]}]"#,
        "mapping 1: \"hostPort\" is 0",
    ),
    (
        "s19",
        r#"[{"name":"a","portMappings":[{"hostPort":80,"containerPort":70000}]}]"#,
        "\"containerPort\" is 70000",
    ),
    (
        "s19",
        r#"[{"name":"a","portMappings":[{"hostPort":80,"containerPort":80,"protocol":"icmp"}]}]"#,
        "mapping 1: protocol \"icmp\"",
    ),
    (
        "s22",
        r#"[{"name":"a","bandwidth":{}}]"#,
        "item 1: bandwidth {}",
    ),
    (
        "s22",
        r#"[{"name":"a","bandwidth":{"egressRate":0}}]"#,
        "\"egressRate\" is 0",
    ),
    (
        "s25",
        r#"[{"name":"a","default-route":["10.0.0.1"]},{"name":"a","default-route":["::1"]}]"#,
        "item 2: default-route",
    ),
    (
        "s30",
        r#"[{"name":"a","infiniband-guid":"24:8a:07:03:00:8d"}]"#,
        "item 1: infiniband-guid",
    ),
    (
        "s30",
        r#"[{"name":"a","infiniband-guid":"00:00:00:00:fe:80:00:00:00:00:00:00:24:8a:07:03:00:8d:ae:2e"}]"#,
        "item 1: infiniband-guid",
    ),
];

// Requirements N4, S7, S8, S12, S14, S19, S22, S25, S30.
#[test]
fn an_invalid_value_fails_the_pod_or_its_annotation_is_ignored() {
    let can = json!({"ips": true, "mac": true, "portMappings": true, "bandwidth": true, "infinibandGUID": true});
    let Some(node) = Node::new("values", &[("a", spy("a", &json!({"capabilities": can})))]) else {
        return;
    };
    let named = |(number, (id, text, _)): (usize, &(&str, &'static str, &str))| {
        (format!("{id}-{number}"), *text)
    };
    let pods = node.pods(&INVALID.iter().enumerate().map(named).collect::<Vec<_>>());
    for (pod, (id, text, words)) in pods.iter().zip(INVALID) {
        pod.call.add().refused(7, &[NETWORKS, words]);
        assert_eq!(
            (calls(), pod.ns.link_names()),
            (vec![], vec![]),
            "{id}: {text}"
        );
        let ignoring = pod.call.clone().with("invalidAnnotation", "ignore");
        ignoring.add().result();
        assert_eq!(
            (calls(), pod.ns.link_names()),
            (vec![], vec!["eth0".to_owned()]),
            "{id}: {text}"
        );
        ignoring.del().ok();
    }
    node.world.sandbox.assert_nothing_left();
    let list = node
        .world
        .server
        .kubectl(&["get", "pods", "-n", "values", "-o", "json"], None);
    let list: Value = serde_json::from_str(&list).expect("kubectl prints JSON");
    for pod in list["items"].as_array().expect("pods") {
        let names: Vec<Value> = Node::status_of(pod)
            .iter()
            .map(|entry| entry["name"].clone())
            .collect();
        assert_eq!(names, ["default"], "{}", pod["metadata"]["name"]);
    }
    let events = node.events();
    for (id, _, words) in INVALID {
        let is_it = |told: &&String| {
            told.starts_with("Warning InvalidAnnotation: ") && told.contains(words)
        };
        assert!(
            events.iter().any(|told| is_it(&told)),
            "{id} {words}: {events:?}"
        );
    }
}
