//! Order in which networks are attached and detached, and what happens after a failure.

use super::{NETWORKS, Node, bridged, calls, json, spied, spy};
use braid_core::k8s::DEFAULT_NETWORK;
use braid_tests::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

// Requirements C1, C6, R8.
#[test]
fn the_default_network_is_first_and_alone_gets_the_runtimes_config() {
    let can = json!({"capabilities": {"portMappings": true, "mac": true}});
    let Some(node) = Node::new("first", &[("a", spy("a", &can)), ("b", spy("b", &can))]) else {
        return;
    };
    Node::set_default(&spy("default", &can));
    let pod = node.pod(
        "web",
        r#"[{"name":"a"},{"name":"b","portMappings":[{"hostPort":1,"containerPort":2}]}]"#,
    );
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    pod.call
        .clone()
        .with("runtimeConfig", json!({"portMappings": ports}))
        .add()
        .result();
    let offered: Vec<Value> = spied()
        .iter()
        .map(|call| call["conf"]["runtimeConfig"]["portMappings"].clone())
        .collect();
    let own = json!([{"hostPort": 1, "containerPort": 2, "protocol": "tcp"}]);
    assert_eq!(offered, [ports, json!(null), own]);
    assert_eq!(
        calls(),
        ["ADD default eth0 spy", "ADD a net1 spy", "ADD b net2 spy"]
    );
    pod.call.del().ok();
    assert_eq!(
        calls(),
        ["DEL b net2 spy", "DEL a net1 spy", "DEL default eth0 spy"]
    );
}

// Requirement C5.
#[test]
fn add_waits_for_the_default_network_and_status_reports_it_missing() {
    let Some(node) = Node::new("ready", &[]) else {
        return;
    };
    let pod = node.annotated("web", &json!({}));
    let call = pod
        .call
        .clone()
        .with("readinessindicatorfile", "/run/ready");
    call.status()
        .refused(50, &["readinessindicatorfile", "/run/ready"]);
    let start = Instant::now();
    call.add().refused(11, &["/run/ready"]);
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "{:?}",
        start.elapsed()
    );
    node.assert_nothing_left(&pod);
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| call.add());
        fs::write("/run/ready", "").expect("a file");
        adding.join().expect("an ADD").result();
    });
    call.status().ok();
    call.del().ok();
}

// Requirement R1.
#[test]
fn plugins_of_all_versions_chain_and_the_result_has_the_callers_version() {
    let list = |version: &str| {
        let interface = json!({"name": "n", "sandbox": "/run/netns/web"});
        let says = json!({"cniVersion": version, "interfaces": [interface],
            "ips": [{"version": "4", "address": "10.5.0.2/24", "interface": 0}]});
        let plugins = json!([{"type": "spy", "says": says}, {"type": "spy2"}]);
        json!({"cniVersion": version, "name": format!("v{version}"), "plugins": plugins})
    };
    let versions = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
    let networks = versions.map(|version| (format!("v{version}"), list(version)));
    let networks: Vec<(&str, Value)> = networks
        .iter()
        .map(|(name, list)| (name.as_str(), list.clone()))
        .collect();
    let Some(node) = Node::new("versions", &networks) else {
        return;
    };
    Node::set_default(&list("0.3.1"));
    let pod = node.pod("web", "v0.3.1,v0.4.0,v1.0.0,v1.1.0");
    let result = pod.call.clone().with("cniVersion", "0.4.0").add().result();
    assert_eq!(
        (&result["cniVersion"], &result["ips"][0]["version"]),
        (&json!("0.4.0"), &json!("4"))
    );
    let spied = spied();
    for (pair, version) in spied.chunks(2).zip(["0.3.1"].into_iter().chain(versions)) {
        let [first, second] = [&pair[0]["conf"], &pair[1]["conf"]];
        let name = json!(format!("v{version}"));
        assert_eq!(
            [&first["cniVersion"], &second["cniVersion"]],
            [&json!(version); 2]
        );
        assert_eq!([&first["name"], &second["name"]], [&name; 2]);
        assert_eq!(first["prevResult"], Value::Null);
        assert_eq!(second["prevResult"]["cniVersion"], version);
        assert_eq!(second["prevResult"]["ips"][0]["address"], "10.5.0.2/24");
    }
    pod.call.del().ok();
}

// Requirements R2, R3.
#[test]
fn a_failure_ends_add_immediately_and_rolls_back_newest_first() {
    let networks = [
        ("lan", bridged(1)),
        ("a", spy("a", &json!({}))),
        ("bad", spy("bad", &json!({"fail": "ADD"}))),
        ("c", spy("c", &json!({}))),
    ];
    let Some(node) = Node::new("fails", &networks) else {
        return;
    };
    Node::set_default(&spy("default", &json!({})));
    let pod = node.pod("web", "lan,a,bad,c");
    let error = pod.call.add().error();
    assert!(error.msg.contains("spy was told to fail"), "{error:?}");
    let adds = ["ADD default eth0 spy", "ADD a net2 spy", "ADD bad net3 spy"];
    let dels = ["DEL bad net3 spy", "DEL a net2 spy", "DEL default eth0 spy"];
    assert_eq!(calls(), [adds, dels].concat());
    assert_eq!(node.entries(&pod), [""; 0]);
    node.assert_nothing_left(&pod);
}

// Requirements R4, R5.
#[test]
fn del_continues_after_an_error_reports_it_and_keeps_the_failed_part() {
    let networks = [
        ("a", spy("a", &json!({}))),
        ("b", spy("b", &json!({}))),
        ("lan", bridged(1)),
    ];
    let Some(node) = Node::new("goes-on", &networks) else {
        return;
    };
    let pod = node.pod("web", "a,b,lan");
    pod.call.add().result();
    calls();
    fs::write("/run/fail.b.DEL", "").expect("a file");
    let error = pod.call.del().error();
    assert!(error.msg.contains("spy was told to fail"), "{error:?}");
    assert_eq!(calls(), ["DEL b net2 spy", "DEL a net1 spy"]);
    assert_eq!(pod.ns.link_names(), [""; 0]);
    fs::remove_file("/run/fail.b.DEL").expect("the file");
    pod.call.del().ok();
    assert_eq!(
        calls(),
        ["DEL b net2 spy"],
        "what is done is not done again"
    );
    pod.call.del().ok();
    assert_eq!(calls(), [""; 0]);
    node.assert_nothing_left(&pod);
}

// Requirement R6.
#[test]
fn calls_for_one_container_and_its_networks_never_overlap() {
    let alone = |name: &str| spy(name, &json!({"alone": true}));
    let Some(node) = Node::new("alone", &[("a", alone("a")), ("b", alone("b"))]) else {
        return;
    };
    let pod = node.pod("web", "a,b");
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| pod.call.add());
        let deleting = [
            scope.spawn(|| pod.call.del()),
            scope.spawn(|| pod.call.del()),
        ];
        adding.join().expect("an ADD").result();
        for deleting in deleting {
            deleting.join().expect("a DEL").ok();
        }
    });
    pod.call.del().ok();
    assert!(!Path::new("/run/met").exists(), "{:?}", calls());
    node.assert_nothing_left(&pod);
}

// Requirement R7.
#[test]
fn isolation_holds_for_both_annotations() {
    let Some(node) = Node::new("isolated", &[("own", bridged(1))]) else {
        return;
    };
    node.world
        .server
        .kubectl(&["create", "namespace", "isolated-2"], None);
    node.create_networks(&[("isolated-2/lan", spy("lan", &json!({})))]);
    for (pod, annotation) in [("networks", NETWORKS), ("default", DEFAULT_NETWORK)] {
        let pod = node.annotated(pod, &json!({annotation: "isolated-2/lan"}));
        let call = pod.call.clone().with("namespaceIsolation", true);
        call.add().refused(
            7,
            &["network isolated-2/lan: namespaceIsolation allows pods in isolated only"],
        );
        assert_eq!(calls(), [""; 0]);
        node.assert_nothing_left(&pod);
        call.clone()
            .with("globalNamespaces", "isolated-2")
            .add()
            .result();
        call.del().ok();
        assert_eq!(calls().len(), 2);
    }
    let pod = node.annotated("own", &json!({DEFAULT_NETWORK: "isolated/own"}));
    let call = pod.call.clone().with("namespaceIsolation", true);
    call.add().result();
    assert_eq!(
        (node.entries(&pod), pod.ns.addrs("eth0")),
        (
            vec!["own eth0 true".to_owned()],
            vec!["10.1.0.2/24".to_owned()]
        )
    );
    call.del().ok();
    node.assert_nothing_left(&pod);
}

// Requirement R7.
#[test]
fn a_cluster_network_may_be_the_default_and_refusals_are_events() {
    let Some(node) = Node::new("own-space", &[]) else {
        return;
    };
    for namespace in ["space-of-multus", "space-of-others"] {
        node.world
            .server
            .kubectl(&["create", "namespace", namespace], None);
        node.create_networks(&[(&format!("{namespace}/lan"), bridged(1))]);
    }
    let isolated = |pod: &super::Pod| {
        pod.call
            .clone()
            .with("namespaceIsolation", true)
            .with("multusNamespace", "space-of-multus")
    };
    for (name, network) in [("bare", "lan"), ("full", "space-of-multus/lan")] {
        let pod = node.annotated(name, &json!({DEFAULT_NETWORK: network}));
        isolated(&pod).add().result();
        assert_eq!(node.entries(&pod), ["space-of-multus/lan eth0 true"]);
        isolated(&pod).del().ok();
        node.assert_nothing_left(&pod);
    }
    let refused = [
        ("other", DEFAULT_NETWORK, "space-of-others/lan"),
        ("more", NETWORKS, "space-of-multus/lan"),
        ("more-others", NETWORKS, "space-of-others/lan"),
    ];
    for (name, annotation, network) in refused {
        let pod = node.annotated(name, &json!({annotation: network}));
        isolated(&pod)
            .add()
            .refused(7, &[&format!("network {network}: namespaceIsolation")]);
        node.assert_nothing_left(&pod);
    }
    let mut events = node.events();
    events.retain(|told| told.starts_with("Warning NetworkNotAllowed: network space-of-"));
    assert_eq!(events.len(), refused.len(), "{:?}", node.events());
}

#[test]
fn a_refused_request_creates_an_event_for_the_pod() {
    let networks = [
        ("lan", bridged(1)),
        ("wrong", json!("{")),
        ("deaf", spy("deaf", &json!({"capabilities": {"ips": true}}))),
    ];
    let Some(node) = Node::new("refusals", &networks) else {
        return;
    };
    let refused = [
        (
            "taken",
            r#"[{"name":"lan","interface":"eth0"}]"#,
            "interface eth0",
        ),
        ("config", r#"[{"name":"wrong"}]"#, "network refusals/wrong"),
        (
            "ports",
            r#"[{"name":"lan","portMappings":[{"hostPort":1,"containerPort":2}]}]"#,
            "\"portMappings\"",
        ),
        (
            "ignored",
            r#"[{"name":"deaf","ips":["10.0.0.7/24"]}]"#,
            "ips 10.0.0.7/24",
        ),
        (
            "claim",
            r#"[{"name":"lan","ipam-claim-reference":"none"}]"#,
            "refusals/none",
        ),
    ];
    for (name, networks, words) in refused {
        let pod = node.pod(name, networks);
        let error = pod.call.add().error();
        assert!(error.msg.contains(words), "{error:?}");
        node.assert_nothing_left(&pod);
        let events = node.events();
        let is_it =
            |told: &&String| told.starts_with("Warning NetworkRefused: ") && told.contains(words);
        assert!(events.iter().any(|told| is_it(&told)), "{name}: {events:?}");
    }
}

#[test]
fn a_repeated_add_detaches_foreign_networks_and_attaches_again() {
    let Some(node) = Node::new(
        "anew",
        &[("a", spy("a", &json!({}))), ("b", spy("b", &json!({})))],
    ) else {
        return;
    };
    Node::set_default(&spy("default", &json!({})));
    let pod = node.pod("web", "a");
    pod.call.add().result();
    let added = ["ADD default eth0 spy", "ADD a net1 spy"];
    assert_eq!(calls(), added);
    let annotation = format!("{NETWORKS}=a,b");
    node.world.server.kubectl(
        &[
            "annotate",
            "pod",
            "web",
            "-n",
            "anew",
            "--overwrite",
            &annotation,
        ],
        None,
    );
    pod.call.add().result();
    let undone = ["DEL a net1 spy", "DEL default eth0 spy"];
    assert_eq!(
        calls(),
        [&undone[..], &added[..], &["ADD b net2 spy"]].concat()
    );
    pod.call.del().ok();
    assert_eq!(calls(), [&["DEL b net2 spy"][..], &undone[..]].concat());
    node.assert_nothing_left(&pod);
}
