//! Secrets: braid never prints a token. It also never prints a plugin's secret from a network's
//! configuration.

use super::{NETWORK_STATUS, NETWORKS, Node, Value, bridged, calls, json, spy};
use crate::token;
use braid_tests::{Answer, binary};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const SECRET: &str = "canary-5b1e77d0";

/// Returns the configuration of a spy network. The configuration contains a password and the keys
/// of `more`.
fn secretive(name: &str, more: &Value) -> Value {
    let mut conf = spy(name, more);
    conf["password"] = SECRET.into();
    conf["args"] = json!({"cni": {"key": SECRET}});
    conf
}

/// Returns networks with a secret: one that works, one with braid's own plugins, and several that
/// fail in different ways.
fn networks() -> Vec<(&'static str, Value)> {
    let mut native = bridged(1);
    native["plugins"][0]["password"] = SECRET.into();
    native["plugins"][0]["ipam"]["password"] = SECRET.into();
    let mut no_ipam = bridged(2);
    no_ipam["plugins"][0]["ipam"] = json!({"type": "no-such-ipam", "password": SECRET});
    let mut no_range = bridged(3);
    no_range["plugins"][0]["ipam"] = json!({"type": "host-local", "password": SECRET});
    let listed = json!({"cniVersion": "1.0.0", "name": "listed", "plugins": [{"type": "spy", "password": SECRET}, {"password": SECRET}]});
    vec![
        ("good", secretive("good", &json!({}))),
        ("native", native),
        (
            "cut-off",
            json!(format!(
                r#"{{"cniVersion":"1.0.0","type":"spy","password":"{SECRET}"#
            )),
        ),
        (
            "no-comma",
            json!(format!(
                r#"{{"type":"spy","password":"{SECRET}" "name":"x"}}"#
            )),
        ),
        ("no-object", json!(format!(r#"["{SECRET}"]"#))),
        (
            "no-type",
            json!({"cniVersion": "1.0.0", "password": SECRET}),
        ),
        (
            "no-program",
            json!({"cniVersion": "1.0.0", "name": "x", "type": "no-such-program", "password": SECRET}),
        ),
        ("no-ipam", no_ipam),
        ("no-range", no_range),
        ("listed", listed),
        (
            "version",
            secretive("version", &json!({"cniVersion": "9.9.9"})),
        ),
        ("fails", secretive("fails", &json!({"fail": "ADD"}))),
        (
            "quiet",
            secretive("quiet", &json!({"says": {"cniVersion": "1.0.0"}})),
        ),
        ("wrong", secretive("wrong", &json!({"says": "no result"}))),
    ]
}

/// All texts that braid has printed or written to the API so far.
struct Heard(Vec<String>);

impl Heard {
    fn answer(&mut self, answer: &Answer) {
        self.0.push(format!("{} {}", answer.stdout, answer.stderr));
    }

    /// Runs braid with these arguments, and records its output.
    fn command(&mut self, words: &str) {
        let command = Command::new(binary::braid())
            .args(words.split_whitespace())
            .stdin(Stdio::null())
            .output();
        let output = command.expect("braid starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = format!("{} {}", text(&output.stdout), text(&output.stderr));
        assert!(!said.contains("Usage:"), "braid {words}: {said}");
        self.0.push(said);
    }

    #[track_caller]
    fn has_no(&self, secrets: &[&str]) {
        for said in &self.0 {
            for secret in secrets {
                assert!(!said.contains(secret), "{secret} is in {said}");
            }
        }
    }
}

#[test]
fn braid_never_prints_a_token_or_a_networks_secret() {
    let networks = networks();
    let Some(node) = Node::new("secrets", &networks) else {
        return;
    };
    let mut heard = Heard(Vec::new());
    for (name, _) in &networks {
        let pod = node.pod(name, &format!("good,{name}"));
        let added = pod.call.add();
        assert_eq!(
            added.code == 0,
            ["good", "native", "quiet"].contains(name),
            "{name}: {}",
            added.stdout
        );
        heard.answer(&added);
        if added.code == 0 {
            heard.answer(&pod.call.check(&added.result()));
            heard.answer(&pod.call.gc(&[(name, "eth0")]));
            for words in [
                "status",
                "status -o json",
                "doctor",
                "gc --dry-run",
                "top -n 1 -d 0.1",
            ] {
                heard.command(words);
            }
        }
        heard.answer(&pod.call.status());
        heard.answer(&pod.call.run("VERSION"));
        heard.answer(&pod.call.del());
        node.assert_nothing_left(&pod);
    }
    assert!(calls().len() > networks.len(), "the plugin was asked");
    let objects = ["pods", "events", "ipamclaims"].map(|kind| {
        node.world
            .server
            .kubectl(&["get", kind, "-n", "secrets", "-o", "json"], None)
    });
    assert!(objects.concat().contains(NETWORK_STATUS));
    heard.0.extend(objects);
    manifests(&node, &networks, &mut heard);
    heard.has_no(&[SECRET, &node.world.server.token]);
}

/// Runs `braid lint`, `plan` and `try` on manifests of these networks, and records the output.
fn manifests(node: &Node, networks: &[(&str, Value)], heard: &mut Heard) {
    for (name, config) in networks {
        let config = config
            .as_str()
            .map_or_else(|| config.to_string(), str::to_owned);
        let nad = json!({"kind": "NetworkAttachmentDefinition", "metadata": {"name": name}, "spec": {"config": config}});
        let pod =
            json!({"kind": "Pod", "metadata": {"name": "web", "annotations": {NETWORKS: name}}});
        fs::write(
            "/run/web.json",
            json!({"kind": "List", "items": [pod, nad]}).to_string(),
        )
        .expect("a file");
        for verb in ["lint", "plan", "try"] {
            heard.command(&format!("{verb} -f /run/web.json"));
        }
    }
    node.world.sandbox.assert_nothing_left();
}

#[test]
fn a_rejected_token_is_in_no_error_and_reaches_no_plugin() {
    let Some(node) = Node::new("tokens", &[("a", spy("a", &json!({})))]) else {
        return;
    };
    let (mut heard, expired) = (Heard(Vec::new()), token::expired(node.world.server));
    let pod = node.pod("web", "a");
    let added = pod.call.add();
    added.result();
    let spied = fs::read_to_string("/run/spied").expect("calls");
    heard.0.push(spied);
    heard.answer(&pod.call.del());
    for user in [
        json!({"token": expired}),
        json!({"token": [expired]}),
        json!({"tokenFile": expired}),
        json!({"username": "u", "password": expired}),
    ] {
        node.world.kubeconfig(&user);
        let added = pod.call.add();
        assert_eq!(added.code, 1, "{user}: {}", added.stdout);
        if user["tokenFile"].is_null() {
            heard.answer(&added);
        }
    }
    heard.has_no(&[&expired, &node.world.server.token]);
    node.assert_nothing_left(&pod);
}

#[test]
fn files_of_a_pod_have_the_expected_modes() {
    let Some(node) = Node::new(
        "modes",
        &[(
            "vf",
            spy("vf", &json!({"capabilities": {"deviceID": true}})),
        )],
    ) else {
        return;
    };
    let resource = "k8s.v1.cni.cncf.io/resourceName=example.com/vf";
    node.world.server.kubectl(
        &["annotate", "net-attach-def", "vf", "-n", "modes", resource],
        None,
    );
    let folder = "/run/k8s.cni.cncf.io/devinfo";
    fs::create_dir_all(format!("{folder}/dp")).expect("a folder");
    let info = json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:18:02.1"}})
        .to_string();
    fs::write(
        format!("{folder}/dp/example.com-vf-0000:18:02.1-device.json"),
        info,
    )
    .expect("a file");
    let pod = node.pod(
        "web",
        &json!([{"name": "vf", "deviceID": "0000:18:02.1"}]).to_string(),
    );
    pod.call.add().result();
    let device_file = format!("{folder}/cni/web:net1-device.json");
    let mode = |path: &str| {
        fs::metadata(path)
            .unwrap_or_else(|err| panic!("{path}: {err}"))
            .permissions()
            .mode()
    };
    for (path, expected) in [
        ("/run/braid/attachments/web/eth0:pods:braid.json", 0o100_600),
        ("/run/braid/attachments/web", 0o40_700),
        // Other users may read device information.
        (device_file.as_str(), 0o100_644),
        ("/run/k8s.cni.cncf.io/devinfo/cni", 0o40_755),
    ] {
        assert_eq!(
            format!("{:o}", mode(path)),
            format!("{expected:o}"),
            "{path}"
        );
    }
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}
