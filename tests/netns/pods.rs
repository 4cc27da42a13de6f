//! Pods in manifest files: `braid lint`, `plan` and `try`, and the examples of `docs/networks.md`.

use braid_tests::page::blocks;
use braid_tests::{Sandbox, Value, binary, json};
use std::fs;
use std::process::{Command, Stdio};

/// The documentation page with the cookbook of examples.
const PAGE: &str = include_str!("../../docs/networks.md");

/// Manifests of a pod and its two networks. The pod requests its default route in the second one.
const MANIFESTS: &str = r#"apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  annotations:
    k8s.v1.cni.cncf.io/networks: |
      [{"name": "blue"},
       {"name": "green", "namespace": "other", "interface": "lan0",
        "mac": "02:00:00:00:00:17", "default-route": ["10.3.0.1"]}]
---
apiVersion: v1
kind: List
items:
- kind: NetworkAttachmentDefinition
  metadata: {name: blue, namespace: shop}
  spec:
    config: '{"cniVersion":"1.1.0","type":"ptp",
      "ipam":{"type":"host-local","subnet":"10.2.0.0/24"}}'
- kind: NetworkAttachmentDefinition
  metadata: {name: green, namespace: other}
  spec:
    config: '{"cniVersion":"1.1.0","type":"bridge","bridge":"green0","capabilities":{"mac":true},
      "ipam":{"type":"host-local","subnet":"10.3.0.0/24"}}'
"#;

/// Runs braid with the arguments `words`. Returns the exit code, standard output and standard
/// error.
fn braid(words: &str) -> (i32, String, String) {
    let output = Command::new(binary::braid())
        .args(words.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Returns the standard output of braid with the arguments `words`. Fails if braid fails or writes
/// to standard error.
#[track_caller]
fn said(words: &str) -> String {
    let (code, stdout, stderr) = braid(words);
    assert_eq!((code, stderr.as_str()), (0, ""), "braid {words}: {stdout}");
    stdout
}

/// Creates a host with the link `eth1`, which the examples use.
fn with_link() -> Sandbox {
    let host = Sandbox::new();
    host.run("ip link add eth1 up type veth peer name far");
    host.run("ip link set far up");
    host
}

#[test]
fn every_example_of_the_cookbook_works() {
    let host = with_link();
    let examples = blocks(PAGE, "yaml");
    assert!(examples.len() >= 5, "{examples:?}");
    for example in examples {
        fs::write("/run/pod.yaml", &example).unwrap();
        assert_eq!(said("lint -f /run/pod.yaml"), "", "{example}");
        let plan = said("plan -f /run/pod.yaml");
        assert!(plan.lines().count() > 5, "{plan}");
        let tried = said("try -f /run/pod.yaml");
        assert!(
            tried.contains("k8s.v1.cni.cncf.io/network-status") && tried.contains("detached in"),
            "{tried}"
        );
        for conf in blocks(PAGE, "json") {
            fs::write("/run/conf", conf).unwrap();
            let tried = said("try -f /run/pod.yaml /run/conf");
            assert!(
                tried.contains("10.244.1.") && tried.contains("detached in"),
                "{tried}"
            );
        }
        host.assert_nothing_left();
    }
}

#[test]
fn try_attaches_a_pod_to_all_networks_of_its_annotation() {
    let host = Sandbox::new();
    fs::write("/run/pod.yaml", MANIFESTS).unwrap();
    let shown = said("try --keep -f /run/pod.yaml");
    let id = shown.split_whitespace().last().unwrap();
    let pod = |command: &str| host.json(&format!("nsenter --net=/run/netns/{id} {command}"));
    let addresses = pod("ip -j -4 addr show scope global");
    let of = |link: &Value| {
        (
            link["ifname"].clone(),
            link["addr_info"][0]["local"].clone(),
        )
    };
    let expected = [
        ("eth0", "10.88.255.2"),
        ("net1", "10.2.0.2"),
        ("lan0", "10.3.0.2"),
    ];
    let found: Vec<_> = addresses.as_array().unwrap().iter().map(of).collect();
    assert_eq!(
        found,
        expected.map(|(name, addr)| (json!(name), json!(addr)))
    );
    assert_eq!(
        pod("ip -j link show lan0")[0]["address"],
        "02:00:00:00:00:17"
    );
    let routes = pod("ip -j -4 route show default");
    let of = |route: &Value| (route["gateway"].clone(), route["dev"].clone());
    assert_eq!(
        routes
            .as_array()
            .unwrap()
            .iter()
            .map(of)
            .collect::<Vec<_>>(),
        [(json!("10.3.0.1"), json!("lan0"))]
    );
    assert!(
        shown.contains(r#""name": "shop/blue""#) && shown.contains(r#""interface": "lan0""#),
        "{shown}"
    );
    let status: Value = serde_json::from_str(&said("status -o json")).unwrap();
    let attachments = status["attachments"].as_array().unwrap();
    let mut of_status: Vec<_> = attachments
        .iter()
        .map(|one| (&one["pod"], &one["network_attachment_definition"]))
        .collect();
    of_status.sort_by_key(|(_, object)| object.to_string());
    let (web, green, blue) = (json!("shop/web"), json!("other/green"), json!("shop/blue"));
    assert_eq!(
        of_status,
        [(&web, &green), (&web, &blue), (&web, &Value::Null)]
    );
    assert!(said("status").contains("definition"));
    said(&format!("detach {id}"));
    host.assert_nothing_left();
    let links = host.link_names();
    assert!(
        !links.iter().any(|name| name.starts_with("try-")),
        "{links:?}"
    );
}

#[test]
fn a_plan_of_a_pod_changes_nothing() {
    let host = Sandbox::new();
    fs::write("/run/pod.yaml", MANIFESTS).unwrap();
    let before = host.state();
    let plan = said("plan -f /run/pod.yaml");
    for words in [
        "peer name eth0",
        "peer name net1",
        "via 10.3.0.1 dev lan0",
        "02:00:00:00:00:17",
    ] {
        assert!(plan.contains(words), "{words}: {plan}");
    }
    assert!(!plan.contains("via 10.88.255.1"), "{plan}");
    let differences = before.differences(&host.state());
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn an_invalid_annotation_is_reported_and_nothing_is_left() {
    let host = Sandbox::new();
    for (annotation, words) in [
        (r#"[{"name": "blue", "mac": "zz"}]"#, "mac"),
        (r#"[{"name": "none"}]"#, "shop/none"),
        (
            r#"[{"name": "blue", "infiniband-guid": "24:8a:07:03:00:8d:ae:2e"}]"#,
            "infinibandGUID",
        ),
    ] {
        let (head, tail) = MANIFESTS.split_once("    k8s.v1").unwrap();
        let tail = tail.split_once("---").unwrap().1;
        let text = format!("{head}    k8s.v1.cni.cncf.io/networks: '{annotation}'\n---{tail}");
        fs::write("/run/pod.yaml", text).unwrap();
        let (code, _, stderr) = braid("try -f /run/pod.yaml");
        assert!(
            code == 1 && stderr.contains(words),
            "{annotation}: {code} {stderr}"
        );
        host.assert_nothing_left();
    }
    for (words, sentence) in [
        ("try", "CONF"),
        ("try -f /nowhere", "/nowhere:1: "),
        ("plan -f /run/pod.yaml a b", "one"),
    ] {
        let (code, _, stderr) = braid(words);
        assert!(code != 0 && stderr.contains(sentence), "{words}: {stderr}");
    }
}

#[test]
fn lint_reports_lines_and_json() {
    let _host = Sandbox::new();
    fs::write("/run/good.yaml", MANIFESTS).unwrap();
    fs::write(
        "/run/bad.yaml",
        MANIFESTS.replace(r#""mac": "02"#, r#""mca": 5, "mac": "zz02"#),
    )
    .unwrap();
    assert_eq!(said("lint -f /run/good.yaml"), "");
    let (code, stdout, _) = braid("lint -f /run/good.yaml /run/bad.yaml");
    assert_eq!((code, stdout.lines().count()), (1, 1), "{stdout}");
    assert!(
        stdout.starts_with(r#"/run/bad.yaml:10: error: mac: "zz02:"#),
        "{stdout}"
    );
    let (code, stdout, _) = braid("lint -o json -f /run/bad.yaml");
    let found: Vec<Value> = serde_json::from_str(&stdout).unwrap();
    let expected = (
        json!("/run/bad.yaml"),
        json!(10),
        json!("error"),
        json!("mac"),
        json!("pod shop/web"),
    );
    let of = |one: &Value| ["file", "line", "level", "key", "object"].map(|key| one[key].clone());
    assert_eq!(
        (code, of(&found[0])),
        (
            1,
            [expected.0, expected.1, expected.2, expected.3, expected.4]
        )
    );
    let warned = MANIFESTS.replace(r#""mac": "02"#, r#""x": 1, "mac": "02"#);
    fs::write("/run/warned.yaml", warned).unwrap();
    let (code, stdout, _) = braid("lint -f /run/warned.yaml");
    assert!(
        code == 0 && stdout.contains(":10: warning: x: 1: "),
        "{stdout}"
    );
}
