//! `braid migrate` on nodes with the files and links that other programs leave.

use crate::conf;
use crate::flannel::flanneld;
use braid_tests::{Sandbox, Value, binary, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const RESULTS: &str = "/var/lib/cni/results";

/// Returns the output of `braid migrate`.
fn migrate(options: &[&str]) -> String {
    let output = Command::new(binary::braid())
        .arg("migrate")
        .args(options)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn advice() -> Value {
    serde_json::from_str(&migrate(&["-o", "json"])).unwrap()
}

fn write(path: &str, text: &str) {
    fs::create_dir_all(Path::new(path).parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Writes the cache of libcni about an attachment, as containerd has it.
fn attached(network: &str, container: &str) {
    let cache = json!({"kind": "cniCacheV1", "containerId": container, "ifName": "eth0",
        "networkName": network, "config": "", "netns": "/run/netns/x"});
    write(
        &format!("{RESULTS}/{network}-{container}-eth0"),
        &cache.to_string(),
    );
}

/// Returns paths and texts of all files that a migration changes.
fn files() -> Vec<(String, String)> {
    let listed = Command::new("find")
        .args([
            "/etc/cni",
            "/opt/cni",
            "/var/lib/cni",
            "/run/flannel",
            "-type",
            "f",
        ])
        .output()
        .unwrap();
    let mut files = Vec::new();
    for path in String::from_utf8(listed.stdout).unwrap().lines() {
        let text = fs::read(path).unwrap();
        files.push((path.to_owned(), String::from_utf8_lossy(&text).into_owned()));
    }
    files.sort();
    files
}

#[test]
fn a_node_of_flannel_and_multus_is_described_and_nothing_changes() {
    let host = Sandbox::new();
    flanneld(
        "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n",
    );
    host.host()
        .run("ip link add flannel.1 type vxlan id 1 dstport 8472 local 127.0.0.1");
    let plugin = "/opt/cni/bin/bridge";
    write(plugin, "#!/bin/sh\n");
    fs::set_permissions(plugin, fs::Permissions::from_mode(0o755)).unwrap();
    write(
        "/etc/cni/net.d/00-multus.conf",
        r#"{"cniVersion": "0.3.1", "name": "multus-cni-network", "type": "multus",
            "clusterNetwork": "/etc/cni/net.d/10-flannel.conflist"}"#,
    );
    write(
        "/etc/cni/net.d/10-flannel.conflist",
        r#"{"name": "cbr0", "cniVersion": "1.0.0", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}"#,
    );
    attached("cbr0", "theirs");
    // An attachment of braid is in the cache as well.
    let pod = host.pod("ours");
    let call = host.call("bridge", &pod, conf::bridge());
    call.add().result();
    attached("net", "ours");
    let before = (files(), host.host().link_names());
    let said = advice();
    assert_eq!((files(), host.host().link_names()), before);
    assert_eq!(said["plugins"]["folder"], "/opt/cni/bin");
    assert_eq!(said["plugins"]["of_others"], json!(["bridge"]));
    let networks = said["networks"].as_array().unwrap();
    assert_eq!(networks[0]["file"], "/etc/cni/net.d/00-multus.conf");
    assert_eq!(
        (&networks[0]["is_default"], &networks[1]["is_default"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(networks[1]["types"], json!(["flannel", "portmap"]));
    assert_eq!(
        said["attachments"],
        json!([{"network": "cbr0", "container_id": "theirs", "ifname": "eth0"}])
    );
    let traces = said["traces"].to_string();
    for trace in [
        "subnet.env exists",
        "link flannel.1",
        "00-multus.conf has type multus",
    ] {
        assert!(traces.contains(trace), "{traces}");
    }
    let changes = said["changes"].to_string();
    for change in [
        "copy braid in /opt/cni/bin",
        "keep bridge as",
        "00-multus.conf, which stays",
    ] {
        assert!(changes.contains(change), "{changes}");
    }
    let commands = said["commands"].as_array().unwrap();
    assert_eq!(
        commands[1]["command"],
        "kubectl apply -f deploy/flannel.yaml"
    );
    let text = migrate(&[]);
    for part in [
        "This node has\n",
        "attached by another program: cbr0 theirs eth0",
        "\nCommands\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
    call.del().ok();
}

#[test]
fn a_node_with_plugins_alone_needs_one_command() {
    let _host = Sandbox::new();
    let said = advice();
    assert_eq!(
        (&said["networks"], &said["attachments"], &said["traces"]),
        (&json!([]), &json!([]), &json!([]))
    );
    assert_eq!(said["commands"][0]["command"], "braid install");
}
