//! Content of the pod's `network-status` annotation.

use super::{NETWORK_STATUS, Node, bridged, json, spy};
use braid_tests::Value;
use std::fs;

/// Returns a status entry without the container ID.
fn plain(mut entry: Value) -> Value {
    entry
        .as_object_mut()
        .expect("an object")
        .remove("io.braid/container");
    entry
}

// Requirements C1, T6.
#[test]
fn a_pod_without_annotation_costs_a_get_and_a_patch() {
    let Some(node) = Node::new("plain", &[]) else {
        return;
    };
    let pod = node.annotated("web", &json!({}));
    pod.call.add().result();
    assert_eq!(node.requests(), ["get pods", "patch pods/status"]);
    assert_eq!(
        (node.world.proxy.connections(), node.entries(&pod)),
        (1, vec!["default eth0 true".to_owned()])
    );
    assert!(pod.ns.can_ping("10.0.0.1"));
    pod.call.del().ok();
    assert_eq!(node.world.proxy.connections(), 1, "DEL asks nobody");
    node.assert_nothing_left(&pod);
}

// Requirements T1, T7, T8, T9, T13, T14.
#[test]
fn an_entry_matches_the_kernels_state() {
    let mut lan = bridged(1);
    lan["plugins"][0]["ipam"]["dns"] = json!({});
    let dns =
        json!({"nameservers": ["192.0.2.53"], "domain": "d.example", "search": ["s.example"]});
    let mut named = bridged(2);
    named["plugins"][0]["dns"] = dns.clone();
    let Some(node) = Node::new("entries", &[("lan", lan), ("named", named)]) else {
        return;
    };
    let pod = node.pod("web", "lan,named@lan2");
    pod.call.clone().with("statusGateway", false).add().result();
    let mac = |link: &str| pod.ns.the_link(link)["address"].clone();
    let status = node.status(&pod);
    let keys = |entry: &Value| {
        entry
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    for key in status.iter().flat_map(keys) {
        let known = [
            "name",
            "interface",
            "ips",
            "mac",
            "mtu",
            "default",
            "dns",
            "default-route",
            "device-info",
        ];
        assert!(known.contains(&key.as_str()) || key.contains('.'), "{key}");
    }
    let mut status: Vec<Value> = status.into_iter().map(plain).collect();
    for entry in &mut status {
        entry.as_object_mut().expect("an object").remove("mtu");
    }
    let entry = |name: &str, link: &str, ip: &str, is_default: bool| json!({"name": name, "interface": link, "ips": [ip], "mac": mac(link), "default": is_default});
    let mut expected = [
        entry("default", "eth0", "10.0.0.2", true),
        entry("entries/lan", "net1", "10.1.0.2", false),
        entry("entries/named", "lan2", "10.2.0.2", false),
    ];
    expected[2]["dns"] = dns;
    assert_eq!(status, expected);
    pod.call.del().ok();
    // Programs written for Multus read a key that is not in the specification.
    let pod = node.pod("multus", r#"[{"name":"lan","default-route":["10.1.0.1"]}]"#);
    pod.call.add().result();
    let gateways = |entry: &Value| ["default-route", "gateway"].map(|key| entry[key].clone());
    let own = json!(["10.1.0.1"]);
    let status: Vec<_> = node.status(&pod).iter().map(gateways).collect();
    assert_eq!(status, [[Value::Null, Value::Null], [own.clone(), own]]);
    pod.call.del().ok();
}

// Requirement T12.
#[test]
fn a_missing_mtu_comes_from_the_kernel() {
    let add = [
        "link add net1 mtu 1400 type veth peer name far",
        "link set net1 up",
    ];
    let networks = [
        (
            "told",
            spy("told", &json!({"ADD": add, "DEL": ["link del net1"]})),
        ),
        ("none", spy("none", &json!({}))),
        (
            "old",
            spy(
                "old",
                &json!({"cniVersion": "0.2.0", "says": {"cniVersion": "0.2.0", "ip4": {"ip": "10.3.0.2/24"}},
            "ADD": ["link add net3 mtu 1300 type veth peer name far3"], "DEL": ["link del net3"]}),
            ),
        ),
    ];
    let Some(node) = Node::new("mtus", &networks) else {
        return;
    };
    let pod = node.pod("web", "told,none,old");
    pod.call.add().result();
    let of_kernel = |link: &str| pod.ns.the_link(link)["mtu"].clone();
    let mtus: Vec<Value> = node
        .status(&pod)
        .iter()
        .map(|entry| entry["mtu"].clone())
        .collect();
    assert_eq!(
        mtus,
        [of_kernel("eth0"), json!(1400), Value::Null, json!(1300)]
    );
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}

// Requirements T3, T4, T5, T10.
#[test]
fn every_result_is_reported_with_the_pods_first_interface() {
    let sandbox = "/run/netns/web";
    let of = |name: &str, sandbox: &str, mac: &str| json!({"name": name, "sandbox": sandbox, "mac": mac});
    let several = json!({
        "cniVersion": "1.0.0",
        "interfaces": [
            {"name": "br0", "mac": "02:00:00:00:00:01"}, {"name": "veth0"},
            of("net1", sandbox, "02:00:00:00:00:02"), of("x", sandbox, "02:00:00:00:00:03"),
        ],
        "ips": [
            {"address": "10.1.0.2/24", "interface": 2}, {"address": "10.1.0.3/24", "interface": 3}, {"address": "10.1.0.4/24"},
        ],
    });
    let old =
        json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.3.0.2/24"}, "ip6": {"ip": "fd00:3::2/64"}});
    let networks = [
        ("several", spy("several", &json!({"says": several}))),
        ("silent", spy("silent", &json!({"says": null}))),
        (
            "old",
            spy("old", &json!({"says": old, "cniVersion": "0.2.0"})),
        ),
    ];
    let Some(node) = Node::new("results", &networks) else {
        return;
    };
    let pod = node.pod("web", "several,silent,old");
    pod.call.add().result();
    let status: Vec<Value> = node.status(&pod).into_iter().skip(1).map(plain).collect();
    let several = json!({"name": "results/several", "interface": "net1", "ips": ["10.1.0.2"], "mac": "02:00:00:00:00:02",
        "default": false});
    let silent = json!({"name": "results/silent", "default": false});
    let old = json!({"name": "results/old", "interface": "net3", "ips": ["10.3.0.2", "fd00:3::2"], "default": false});
    assert_eq!(status, [several, silent, old]);
    pod.call.del().ok();
}

// Requirements T2, T17.
#[test]
fn an_update_changes_only_the_annotation_and_drops_earlier_sandboxes() {
    let Some(node) = Node::new("others", &[("lan", bridged(1))]) else {
        return;
    };
    let before = json!([
        {"name": "others/lan", "interface": "net1", "org.example/note": "old", "ips": ["192.0.2.1"]},
        {"name": "others/hot", "interface": "hot0", "ips": ["192.0.2.2"], "default": false},
        {"name": "others/own", "interface": "net7", "default": false, "io.braid/container": "gone"},
    ]);
    let annotations =
        json!({super::NETWORKS: "lan", NETWORK_STATUS: before.to_string(), "other": "kept"});
    let pod = node.annotated("web", &annotations);
    let condition = json!([{"op": "add", "path": "/status/message", "value": "kept"},
        {"op": "add", "path": "/status/podIP", "value": "10.0.0.2"}]);
    let patch = [
        "patch",
        "pod",
        "web",
        "-n",
        "others",
        "--subresource=status",
        "--type=json",
        "-p",
    ];
    node.world
        .server
        .kubectl(&[&patch[..], &[&condition.to_string()]].concat(), None);
    let status = node.world.get("pod", "web")["status"].clone();
    pod.call.add().result();
    let now = node.world.get("pod", "web");
    assert_eq!(
        (&now["status"], &now["metadata"]["annotations"]["other"]),
        (&status, &json!("kept"))
    );
    assert_eq!(node.entries(&pod), ["default eth0 true", "lan net1 false"]);
    let entries = node.status(&pod);
    assert_eq!(
        (&entries[1]["org.example/note"], &entries[1]["ips"]),
        (&json!(null), &json!(["10.1.0.2"]))
    );
    assert_eq!(
        node.requests(),
        [
            "get pods",
            "get network-attachment-definitions",
            "patch pods/status"
        ]
    );
    pod.call.del().ok();
}

/// Overwrites the status of the pod `web`, as another writer would.
fn write_status(node: &Node, entries: &Value) {
    let annotation = format!("{NETWORK_STATUS}={entries}");
    let namespace = &node.world.namespace;
    node.world.server.kubectl(
        &[
            "annotate",
            "pod",
            "web",
            "-n",
            namespace,
            "--overwrite",
            &annotation,
        ],
        None,
    );
}

// Requirement T2.
#[test]
fn entries_added_after_add_read_the_pod_are_kept() {
    for (namespace, before) in [
        ("added-first", None),
        ("added-none", Some(json!({"other": "x"}))),
        (
            "added-stale",
            Some(json!({
        NETWORK_STATUS: r#"[{"name":"x/stale","interface":"old0"},{"name":"x/changed","interface":"old1"}]"#})),
        ),
    ] {
        let Some(node) = Node::new(namespace, &[]) else {
            return;
        };
        Node::set_default(&spy("default", &json!({"pause": "ADD"})));
        node.world.sandbox.run("mkfifo /run/reached /run/go-on");
        let pod = node.annotated("web", &before.unwrap_or_else(|| json!({})));
        std::thread::scope(|scope| {
            let adding = scope.spawn(|| pod.call.add());
            fs::read("/run/reached").expect("the plugin runs");
            write_status(
                &node,
                &json!([
                    {"name": "x/stale", "interface": "old0"},
                    {"name": "x/changed", "interface": "old1", "ips": ["192.0.2.1"]},
                    {"name": "x/hot", "interface": "hot0"},
                    {"name": "default", "interface": "eth0", "default": true, "org.example/note": "new"},
                ]),
            );
            fs::write("/run/go-on", "").expect("the plugin waits");
            adding.join().expect("an ADD").result();
        });
        let entries = node.entries(&pod);
        let stays = [
            "default eth0 true",
            "x/stale old0 null",
            "x/changed old1 null",
            "x/hot hot0 null",
        ];
        let stays: Vec<_> = stays
            .into_iter()
            .filter(|one| !(namespace == "added-stale" && one.contains("stale")))
            .collect();
        assert_eq!(entries, stays, "{namespace}");
        assert_eq!(node.status(&pod)[0]["org.example/note"], "new");
        let mut asked = node.requests();
        asked.retain(|one| one != "create events");
        assert_eq!(
            asked,
            [
                "get pods",
                "patch pods/status",
                "get pods",
                "patch pods/status"
            ],
            "{namespace}"
        );
        fs::write(super::DEFAULT, spy("default", &json!({})).to_string())
            .expect("a network that does not wait");
        pod.call.del().ok();
    }
}

// Requirement T11.
#[test]
fn addresses_have_a_prefix_if_configured() {
    let Some(node) = Node::new("prefixes", &[]) else {
        return;
    };
    let pod = node.annotated("web", &json!({}));
    pod.call
        .clone()
        .with("statusPrefixLength", true)
        .add()
        .result();
    assert_eq!(node.status(&pod)[0]["ips"], json!(["10.0.0.2/24"]));
    pod.call.del().ok();
}
