//! Places in which braid finds the configuration of a network.

use super::{CONF_DIR, Node, bridged, calls, json, spied, spy};
use std::fs;
use std::path::PathBuf;

fn on_disk(file: &str, text: &str) {
    fs::write(format!("{CONF_DIR}/{file}"), text).expect("write a network");
}

// Requirements N2, N5, N6, N7, N8, N11.
#[test]
fn a_network_is_found_in_its_object_or_on_disk_by_name() {
    let two = json!({"cniVersion": "1.0.0", "name": "listed", "plugins": [{"type": "spy"}, {"type": "spy2"}]});
    let own = [
        ("listed", json!(null)),
        ("single", json!({"name": "blue"})),
        ("both", spy("both", &json!({}))),
    ];
    let networks = [
        own[0].clone(),
        ("single", json!(null)),
        own[2].clone(),
        ("other", spy("blue", &json!({}))),
    ];
    let Some(node) = Node::new("resolution", &networks) else {
        return;
    };
    on_disk("00-broken.conf", "{");
    on_disk(
        "00-listed.conf",
        &json!({"cniVersion": "1.0.0", "name": "listed", "type": "none"}).to_string(),
    );
    on_disk(
        "50-both.conflist",
        &json!({"cniVersion": "1.0.0", "name": "both", "plugins": [{"type": "none"}]}).to_string(),
    );
    on_disk("90-single.conf", &spy("single", &json!({})).to_string());
    on_disk("99-listed.conflist", &two.to_string());
    let pod = node.pod("web", "listed,single,both,other");
    let result = pod.call.add().result();
    let added = [
        "listed net1 spy",
        "listed net1 spy2",
        "single net2 spy",
        "both net3 spy",
        "blue net4 spy",
    ];
    assert_eq!(calls(), added.map(|call| format!("ADD {call}")));
    let entries = [
        "default eth0 true",
        "listed net1 false",
        "single net2 false",
        "both net3 false",
        "other net4 false",
    ];
    assert_eq!(node.entries(&pod), entries);
    pod.call.check(&result).ok();
    assert_eq!(calls(), added.map(|call| format!("CHECK {call}")));
    pod.call.del().ok();
    let mut deleted = added.map(|call| format!("DEL {call}"));
    deleted.reverse();
    assert_eq!(calls(), deleted);
    node.assert_nothing_left(&pod);
}

/// Returns the path of cnitool, libcni's command-line program: `$BRAID_CNITOOL`, or the path to
/// which `cargo xtask test` installs it. `None` if it is missing.
pub(super) fn cnitool() -> Option<PathBuf> {
    let cached = || {
        PathBuf::from(std::env::var_os("HOME").unwrap_or_default())
            .join(".cache/braid/tools/cnitool")
    };
    Some(std::env::var_os("BRAID_CNITOOL").map_or_else(cached, PathBuf::from))
        .filter(|path| path.is_file())
}

// Requirement N3.
#[test]
fn spec_config_contains_only_the_networks_configuration() {
    // braid's own settings of a network are in annotations. The same keys in a configuration belong
    // to a plugin.
    let ours = json!({"invalidAnnotation": "ignore", "statusPrefixLength": true, "default-route": ["10.1.0.1"],
        "k8s.v1.cni.cncf.io/resourceName": "a/vf", "ipam-claim-reference": "none", "namespaceIsolation": true});
    let Some(node) = Node::new(
        "config",
        &[("ours", spy("ours", &ours)), ("lan", bridged(1))],
    ) else {
        return;
    };
    let before = ["ours", "lan"].map(|name| node.world.get("nad", name));
    let pod = node.pod("web", "ours,lan");
    pod.call.add().result();
    let conf = spied()[0]["conf"].clone();
    assert_eq!(conf, spy("ours", &ours), "as it is");
    let status = node.status(&pod);
    assert_eq!(
        (&status[2]["ips"], &status[1]["default-route"]),
        (&json!(["10.1.0.2"]), &json!(null))
    );
    pod.call.del().ok();
    assert_eq!(
        ["ours", "lan"].map(|name| node.world.get("nad", name)),
        before,
        "nobody writes to it"
    );
    // Another CNI runtime accepts the configuration unchanged.
    let Some(cnitool) = cnitool() else {
        braid_tests::feature::tell_skip(
            "api::config",
            "needs cnitool, installed by cargo xtask test",
        );
        return;
    };
    let text = before[1]["spec"]["config"].as_str().expect("a text");
    fs::create_dir_all("/etc/cni/net.d").expect("a folder");
    fs::write("/etc/cni/net.d/lan.conflist", text).expect("a network");
    let (plugins, other) = (
        braid_tests::sandbox::PLUGINS,
        node.world.sandbox.pod("other"),
    );
    // braid runs under both of these plugin names.
    for plugin in ["bridge", "host-local"] {
        node.world
            .sandbox
            .call(plugin, &other, json!({"cniVersion": "1.0.0"}))
            .run("VERSION")
            .result();
    }
    for (verb, addresses) in [
        ("add", vec!["10.1.0.3/24".to_owned()]),
        ("check", vec!["10.1.0.3/24".to_owned()]),
        ("del", vec![]),
    ] {
        let netns = other.path().display();
        node.world.sandbox.run(&format!(
            "env CNI_PATH={plugins} {} {verb} lan1 {netns}",
            cnitool.display()
        ));
        let found = if other.link_names().is_empty() {
            Vec::new()
        } else {
            other.addrs("eth0")
        };
        assert_eq!(found, addresses, "{verb}");
    }
}

// Requirement N9.
#[test]
fn a_missing_network_fails_the_pod_before_anything_runs() {
    let Some(node) = Node::new(
        "nowhere",
        &[("empty", json!(null)), ("spied", spy("spied", &json!({})))],
    ) else {
        return;
    };
    Node::set_default(&spy("default", &json!({})));
    for (pod, networks, words) in [
        (
            "a",
            "spied,none,spied",
            "network nowhere/none: there is no such NetworkAttachmentDefinition",
        ),
        (
            "b",
            "spied,empty",
            "network nowhere/empty: no configuration is named \"empty\"",
        ),
    ] {
        let pod = node.pod(pod, networks);
        pod.call.add().refused(7, &[words]);
        assert_eq!((calls(), node.entries(&pod)), (vec![], vec![]));
        node.assert_nothing_left(&pod);
    }
    let events = node.events();
    let event = "Warning NoNetworkFound: network nowhere/none: there is no such NetworkAttachmentDefinition";
    assert!(events.iter().any(|told| told == event), "{events:?}");
}

// Requirement N10.
#[test]
fn a_name_is_injected_on_every_verb() {
    let single = json!({"cniVersion": "1.0.0", "type": "spy"});
    let list = json!({"cniVersion": "1.0.0", "plugins": [{"type": "spy"}]});
    let Some(node) = Node::new("nameless", &[("single", single), ("list", list)]) else {
        return;
    };
    let pod = node.pod("web", "single,list");
    let result = pod.call.add().result();
    pod.call.check(&result).ok();
    pod.call.del().ok();
    let of = |verb: &str| {
        [
            format!("{verb} single net1 spy"),
            format!("{verb} list net2 spy"),
        ]
    };
    let [add, check, mut del] = ["ADD", "CHECK", "DEL"].map(of);
    del.reverse();
    assert_eq!(calls(), [add, check, del].concat());
}

#[test]
fn a_foreign_configuration_is_passed_unchanged_on_every_verb() {
    let exact = r#""number":9007199254740993,"big":1e400,"precise":0.10000000000000000555,"unknown":{"a":[null,true]}"#;
    let text = format!(r#"{{"cniVersion":"1.0.0","name":"exact","type":"spy",{exact}}}"#);
    let Some(node) = Node::new("exact", &[("exact", json!(text)), ("lan", bridged(1))]) else {
        return;
    };
    let pod = node.pod("web", "exact,lan");
    let result = pod.call.add().result();
    pod.call.check(&result).ok();
    pod.call.del().ok();
    let spied = spied();
    assert_eq!(spied.len(), 3);
    for call in &spied {
        let text = call["text"].as_str().expect("a text").replace(' ', "");
        for part in [
            "\"number\":9007199254740993",
            "0.10000000000000000555",
            r#""unknown":{"a":[null,true]}"#,
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
    node.assert_nothing_left(&pod);
}

#[test]
fn a_network_that_delegates_to_braid_is_refused() {
    let pods = json!({"cniVersion": "1.0.0", "name": "x", "type": "braid", "kubeconfig": "/run/kubeconfig",
        "clusterNetwork": "/etc/cni/default.conflist"});
    let list = json!({"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "spy"}, {"type": "braid", "network": {}}]});
    let Some(node) = Node::new("circle", &[("pods", pods), ("list", list)]) else {
        return;
    };
    for name in ["pods", "list"] {
        let pod = node.pod(name, name);
        let error = pod.call.add().error();
        assert!(
            error.msg.contains(&format!("network circle/{name}")),
            "{error:?}"
        );
        assert_eq!(calls(), [""; 0]);
        node.assert_nothing_left(&pod);
    }
}
