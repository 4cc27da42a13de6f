use super::*;
use braid_core::k8s::{ObjectName, RESOURCE_NAME};
use braid_core::lint::{capabilities, default_network, nad, networks};
use std::collections::BTreeMap;

fn found(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("f");
    std::fs::write(&path, text).expect("a file");
    let text: String = of_files(&[File::read(&path).expect("manifests")])
        .iter()
        .map(super::text)
        .collect();
    text.replace(&path.display().to_string(), "f")
}

#[test]
fn finding_has_file_line_level_key_value_and_message() {
    let text = r#"kind: NetworkAttachmentDefinition
metadata:
  name: blue
spec:
  config: |
    {"cniVersion": "1.0.0", "type": "macvlan",
     "mtu": "big"}
---
kind: Deployment
metadata: {name: web}
spec:
  template:
    metadata:
      annotations:
        k8s.v1.cni.cncf.io/networks: |
          [{"name": "blue",
            "mac": "02:00:00:00:00:01"},
           {"name": "red"}]
"#;
    let expected = r#"f:7: error: mtu: "big": "mtu": expected a number, got "big"
f:17: warning: mac: "02:00:00:00:00:01": no plugin of network default/blue has the capability "mac"; braid supports it anyway, other implementations may not
f:18: warning: network default/red is not in these files
"#;
    assert_eq!(found(text), expected);
}

#[test]
fn device_claims_have_the_lines_of_their_values() {
    let text = r"apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: storage}
spec:
  spec:
    devices:
      requests:
      - name: n
        exactly:
          deviceClassName: braid.dev
          capacity: {requests: {bandwidth: 200M}}
      config:
      - opaque:
          driver: braid.dev
          parameters:
            apiVersion: braid.dev/v1alpha1
            kind: Attachment
            interface: data0
            network:
              type: macvlan
              master: eth1
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  resourceClaims: [{name: storage, resourceClaimTemplateName: storage}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: lan-100}
spec:
  config:
  - opaque:
      driver: braid.dev
      parameters: {apiVersion: braid.dev/v1alpha1, kind: Attachement}
";
    let expected = r#"f:21: error: master: "eth1": "network": "master": "eth1": the driver sets this key
f:36: error: kind: "Attachement": "kind": "Attachement": not "Attachment"
"#;
    assert_eq!(found(text), expected);
    let good = text.replace("              master: eth1\n", "");
    let good = good.replace("Attachement", "Attachment");
    assert_eq!(found(&good), "");
}

#[test]
fn claims_of_a_pod_are_checked_together() {
    let claim = |name: &str, interface: &str| {
        let parameters =
            format!("{{apiVersion: braid.dev/v1alpha1, kind: Attachment, interface: {interface}}}");
        let requests = "[{name: nic, exactly: {deviceClassName: braid.dev}}]";
        let config = format!("[{{opaque: {{driver: braid.dev, parameters: {parameters}}}}}]");
        let spec = format!("{{devices: {{requests: {requests}, config: {config}}}}}");
        format!(
            "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        )
    };
    let pod = |more: &str| {
        let claims = "[{name: x, resourceClaimName: a}, {name: y, resourceClaimName: b}]";
        format!("kind: Pod\nmetadata:\n  name: web\nspec:\n  resourceClaims: {claims}\n{more}")
    };
    let same = pod("") + &claim("a", "data0") + &claim("b", "data0");
    let expected = "f:5: error: resourceClaims: claim default/b: request \"nic\": \"interface\": \"data0\": the pod has it already\n";
    assert_eq!(found(&same), expected);
    let different = pod("") + &claim("a", "data0") + &claim("b", "data1");
    assert_eq!(found(&different), "");
    assert_eq!(found(&(pod("") + &claim("a", "data0"))), "", "b is unknown");
    let workload = same.replacen("kind: Pod", "kind: Job", 1);
    let workload = workload.replacen(
        "\n  resourceClaims",
        "\n template:\n  spec:\n   resourceClaims",
        1,
    );
    assert_eq!(found(&workload), expected.replacen("f:5", "f:7", 1));
    let host = pod("  hostNetwork: true\n") + &claim("a", "data0") + &claim("b", "data1");
    let expected = "f:5: error: resourceClaims: claim default/a: the pod has hostNetwork, so it can't have network devices of claims\n";
    assert_eq!(found(&host), expected);
    // The claim has the fault, and the pod has it once.
    let own = pod("") + &claim("a", "eth0") + &claim("b", "data0");
    let found = found(&own);
    assert!(
        found.lines().count() == 1 && found.starts_with("f:10:"),
        "{found}"
    );
}

#[test]
fn metadata_faults_have_the_line_of_the_metadata() {
    let text = "kind: NetworkAttachmentDefinition\nmetadata:\n  annotations:\n    k8s.v1.cni.cncf.io/resourceName: vf\n  name: A_\n";
    let found = found(text);
    let starts: Vec<&str> = found.lines().map(|line| &line[..20]).collect();
    assert_eq!(
        starts,
        [
            "f:4: warning: k8s.v1",
            "f:5: error: metadata",
            "f:5: warning: spec.c"
        ],
        "{found}"
    );
}

fn nad_of(config: &str) -> Nad {
    let name = ObjectName {
        namespace: "pods".to_owned(),
        name: "a".to_owned(),
    };
    Nad {
        name,
        config: config.to_owned(),
        annotations: BTreeMap::new(),
    }
}

/// Returns the findings with their lines in `text`.
fn shown_in(text: &str, findings: &[Finding]) -> Vec<String> {
    let lines = Lines::of(text);
    findings
        .iter()
        .map(|finding| format!("line {}: {finding}", lines.line(&finding.place)))
        .collect()
}

fn shown_of(of: &Nad) -> Vec<String> {
    shown_in(&of.config, &nad(of))
}

/// Returns a configuration without findings, except for `keys`.
fn config(keys: &str) -> String {
    format!("{{\"cniVersion\":\"1.0.0\",\"name\":\"a\",\n{keys}}}")
}

const LOCAL: &str = r#""ipam":{"type":"host-local","subnet":"10.0.0.0/24"}"#;

#[test]
fn a_network_without_a_fault_has_no_finding() {
    for keys in [
        format!(r#""type":"bridge",{LOCAL}"#),
        r#""type":"macvlan","master":"eth0""#.to_owned(),
        format!(
            r#""plugins":[{{"type":"ptp",{LOCAL}}},{{"type":"portmap","capabilities":{{"portMappings":true}}}},
                {{"type":"bandwidth","capabilities":{{"bandwidth":true}}}},{{"type":"tuning","sysctl":{{}}}}]"#
        ),
    ] {
        assert_eq!(shown_of(&nad_of(&config(&keys))), [""; 0], "{keys}");
    }
}

#[test]
fn each_fault_of_a_network_has_line_key_and_value() {
    for (keys, expected) in [
        (
            r#""type":"bridge","vlan":5000"#,
            "line 2: error: vlan: 5000: ",
        ),
        (
            "\"type\":\"bridge\",\n\"mtu\":\"big\"",
            r#"line 3: error: mtu: "big": "mtu": expected a number, got "big""#,
        ),
        (r#""x":1"#, "line 1: error: no plugin name provided"),
        (
            r#""type":"ovn-k8s""#,
            r#"line 2: warning: type: "ovn-k8s": not a built-in type"#,
        ),
        (
            r#""type":"ptp""#,
            r#"line 2: error: type: "ptp": it requires an "ipam" with a type"#,
        ),
        (
            r#""type":"host-local""#,
            r#"line 2: error: type: "host-local": an IPAM plugin, not a network plugin"#,
        ),
        (
            r#""type":"bridge","ipam":{"type":"calico-ipam"}"#,
            r#"line 2: warning: type: "calico-ipam": not a built-in type"#,
        ),
        (
            r#""type":"bridge","ipam":{"type":"ptp"}"#,
            r#"line 2: error: type: "ptp": a network plugin, not an IPAM plugin"#,
        ),
        (
            "\"type\":\"bridge\",\"ipam\":{\"type\":\"host-local\",\n\"subnet\":\"x\"}",
            "line 3: error: subnet: \"x\": ",
        ),
        (
            "\"plugins\":[{\"type\":\"macvlan\"},\n{\"type\":\"portmap\"}]",
            "line 3: warning: type: \"portmap\": it does nothing",
        ),
        (
            "\"plugins\":[{\"type\":\"macvlan\"},\n{\"type\":\"tuning\",\"mac\":5}]",
            "line 3: error: mac: 5: ",
        ),
        (
            r#""type":"macvlan","capabilities":{"portmappings":true}"#,
            r#"line 2: warning: portmappings: true: no runtime provides this capability; did you mean "portMappings"?"#,
        ),
        (
            r#""type":"braid","kubeconfig":"/k""#,
            r#"line 2: error: kubeconfig: "/k": "#,
        ),
    ] {
        let found = shown_of(&nad_of(&config(keys)));
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{keys}: {found:?}"
        );
    }
}

#[test]
fn faults_of_a_whole_network_are_found() {
    let mut named = nad_of("{\"type\":\"macvlan\",\n\"name\":\"b\"}");
    let expected = [
        r#"line 2: warning: name: "b": the object is named "a"; use one name for both"#,
        "line 1: warning: no cniVersion, which means 0.1.0: plugins are not called for CHECK",
    ];
    assert_eq!(shown_of(&named), expected);
    named.name.name = "Net_A".to_owned();
    named
        .annotations
        .insert(RESOURCE_NAME.to_owned(), "vf".to_owned());
    let found = shown_of(&named);
    assert!(
        found[0].starts_with(r#"line 1: error: metadata.name: "Net_A": "#),
        "{found:?}"
    );
    assert!(
        found[1].starts_with(r#"line 1: warning: k8s.v1.cni.cncf.io/resourceName: "vf": "#),
        "{found:?}"
    );
    let broken = nad(&nad_of("{\n\"type\":\n}"));
    assert_eq!(
        (
            broken.len(),
            Lines::Unknown.line(&broken[0].place),
            broken[0].level
        ),
        (1, 3, Level::Error),
        "{broken:?}"
    );
    let on_disk = nad(&nad_of(" "));
    assert_eq!((on_disk.len(), on_disk[0].level), (1, Level::Warning));
}

#[test]
fn faults_of_an_annotation_have_the_line_of_their_item() {
    for (text, expected) in [
        (
            "a,\n b,\n lan@",
            r#"line 3: error: "lan@": interface name after "@" is empty"#,
        ),
        (
            "[\n{\"name\":\"a\"},\n{\"name\":\"b\",\n\"mac\":\"zz\"}]",
            r#"line 4: error: mac: "zz": not six bytes"#,
        ),
        (
            "[\n{\"name\":\"a\"},\n{\"x\":1}]",
            "line 3: error: name: missing",
        ),
        ("[\n{\"name\":\"a\",\n}]", "line 3: error: "),
        (
            "[{\"name\":\"a\",\n\"x\":1}]",
            "line 2: warning: x: 1: unknown key",
        ),
        (
            "[{\"name\":\"a\",\"interfaceRequest\":\"x\"}]",
            r#"line 1: warning: interfaceRequest: "x": deprecated name"#,
        ),
        (
            "[{\"name\":\"a\",\"mac\":\"01:00:5e:00:00:01\"}]",
            r#"line 1: error: mac: "01:00:5e:00:00:01": a multicast address"#,
        ),
        (
            "[{\"name\":\"a\",\"ips\":[\"10.0.0.1\"],\"ipam-claim-reference\":\"c\"}]",
            r#"line 1: error: ips: ["10.0.0.1"]: "ips" and "ipam-claim-reference" can't both be set"#,
        ),
    ] {
        let found = shown_in(text, &networks(text, "pods"));
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{text}: {found:?}"
        );
    }
    for text in ["", "a,b", r#"[{"name":"a","example.com/x":1}]"#] {
        assert_eq!(networks(text, "pods"), []);
    }
    assert_eq!(default_network("a", "pods"), []);
    assert_eq!(default_network("a,b", "pods").len(), 1);
}

// Conformance: S10
#[test]
fn request_that_no_plugin_can_serve_is_found_for_each_key() {
    let text = "[{\"name\":\"a\",\n\"mac\":\"02:00:00:00:00:01\",\n\"ips\":[\"10.0.0.1\"]}]";
    let selection = annotation::networks(text, "pods").unwrap().remove(0);
    let definition =
        |text: &str| Definition::parse(Json::parse(text.as_bytes(), "test").unwrap(), "a").unwrap();
    for (network, level, how) in [
        (r#"{"type":"ipvlan"}"#, "error", ""),
        (
            r#"{"type":"t"}"#,
            "warning",
            "; it is passed in CNI_ARGS, which not every plugin reads",
        ),
        (
            r#"{"type":"macvlan","ipam":{"type":"static"}}"#,
            "warning",
            "; braid supports it anyway, other implementations may not",
        ),
    ] {
        let lacks = "no plugin of network pods/a has the capability";
        let expected = [
            format!(r#"line 3: {level}: ips: ["10.0.0.1"]: {lacks} "ips"{how}"#),
            format!(r#"line 2: {level}: mac: "02:00:00:00:00:01": {lacks} "mac"{how}"#),
        ];
        assert_eq!(
            shown_in(text, &capabilities(text, &selection, &definition(network))),
            expected
        );
    }
    let both = definition(r#"{"type":"t","capabilities":{"ips":true,"mac":true}}"#);
    assert_eq!(capabilities(text, &selection, &both), []);
}

#[test]
fn fault_inside_lists_and_objects_has_its_own_line() {
    for (keys, expected) in [
        (
            "\"type\":\"bridge\",\"ipam\":{\"type\":\"host-local\",\"ranges\":[\n[{\"subnet\":\"10.0.0.0/24\"}],\n[{\n\"subnet\":\"x\"}]]}",
            "line 5: error: subnet: \"x\": ",
        ),
        (
            "\"type\":\"bridge\",\"ipam\":{\"type\":\"host-local\",\"ranges\":[\n[{\"subnet\":\"10.0.0.0/24\"}],\n[{\"subnet\":\"10.1.0.1/24\"}]]}",
            "line 4: error: ranges: ",
        ),
        (
            "\"type\":\"bridge\",\"ipam\":{\"type\":\"static\",\"addresses\":[\n{\"address\":\"10.0.0.1/24\"},\n{\n\"address\":\"x\"}]}",
            "line 5: error: address: \"x\": addresses[1]: the 'address' field",
        ),
        (
            "\"type\":\"bridge\",\"ipam\":{\"type\":\"dhcp\",\"provide\":[\n{\"option\":\"host-name\"},\n{\"option\":\"no\"}]}",
            "line 4: error: option: \"no\": ",
        ),
        (
            "\"type\":\"bridge\",\"vlanTrunk\":[{\"id\":1},\n{\n\"minID\":5000,\"maxID\":5001}]",
            "line 4: error: minID: 5000: ",
        ),
        (
            "\"plugins\":[{\"type\":\"macvlan\"},\n{\"type\":\"sbr\",\"gateways\":[\n\"10.0.0.1\",\n\"10.0.0.x\"]}]",
            "line 5: error: gateways: \"10.0.0.x\": ",
        ),
        (
            "\"plugins\":[{\"type\":\"macvlan\"},\n{\n\"mode\":5}]",
            "line 3: error: plugins: ",
        ),
        (
            "\"plugins\":[{\"type\":\"ipvlan\",\n\"ipam\":{},\n\"mode\":\"l9\"}]",
            "line 4: error: mode: \"l9\": unknown ipvlan mode",
        ),
        (
            "\"type\":\"braid\",\"network\":{\"plugins\":[\n{\"type\":\"ptp\",\n\"mtu\":\"x\"}]}",
            "line 4: error: mtu: \"x\": ",
        ),
        (
            "\"type\":\"macvlan\",\n\"capabilities\":{\n\"ips\":5}",
            "line 4: error: ips: 5: ",
        ),
    ] {
        let found = shown_of(&nad_of(&config(keys)));
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{keys}: {found:?}"
        );
    }
}

#[test]
fn fault_inside_an_annotation_has_its_own_line() {
    for (text, expected) in [
        (
            "[{\"name\":\"a\",\"ips\":[\n\"10.0.0.1\",\n\"x\"]}]",
            "line 3: error: ips: ",
        ),
        (
            "[{\"name\":\"a\",\"portMappings\":[\n{\"hostPort\":1,\"containerPort\":1},\n{\"hostPort\":0}]}]",
            "line 3: error: portMappings: ",
        ),
    ] {
        let found = shown_in(text, &networks(text, "pods"));
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn words_of_a_message_do_not_move_the_line() {
    // The value of the wrong key names another key.
    let keys = "\"type\":\"macvlan\",\n\"mtu\":\"master: x\",\n\"master\":\"eth0\"";
    let found = shown_of(&nad_of(&config(keys)));
    assert!(found[0].starts_with("line 3: error: mtu: "), "{found:?}");
}

#[test]
fn syntax_error_in_a_block_has_line_and_column_of_the_file() {
    let text = r#"kind: NetworkAttachmentDefinition
metadata: {name: blue}
spec:
  config: |
    {"cniVersion": "1.0.0",
      "type": }
---
kind: Pod
metadata:
  name: web
  annotations:
    k8s.v1.cni.cncf.io/networks: |

      [{"name": "blue"},
       {"name": "red",}]
---
kind: NetworkAttachmentDefinition
metadata: {name: green}
spec:
  config: '{"type": }'
---
kind: NetworkAttachmentDefinition
metadata: {name: cut}
spec:
  config: |
    {"type":
    "ptp"
"#;
    let found = found(text);
    let places: Vec<&str> = found
        .lines()
        .map(|line| line.split_once(" error: ").expect("an error").0)
        .collect();
    assert_eq!(places, ["f:6:15:", "f:15:23:", "f:20:", "f:27:"], "{found}");
    assert!(!found.contains(" column "), "{found}");
}
