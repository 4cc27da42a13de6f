//! `braid install` on nodes with configurations of other projects. It runs as in the init container
//! of deploy/: as root without capabilities, and only with the mounted folders of the node.
//! Afterwards libcni attaches a pod.

use crate::program::{self, needs_programs};
use braid_tests::{Ns, Sandbox, Value, binary, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Path of the node's plugin folder.
const BIN: &str = "/run/plugins";
const NETWORKS: &str = "/etc/cni/net.d";
const LIST: &str = "/etc/cni/net.d/00-braid.conflist";
/// Script of a foreign plugin that logs its call and returns `prevResult` unchanged.
const CHAINED: &str = "#!/usr/bin/env python3
import json, os, sys
conf = json.load(sys.stdin)
with open('/run/order', 'a') as order:
    order.write(os.environ['CNI_COMMAND'] + ' ' + os.path.basename(sys.argv[0]) + '\\n')
if os.environ['CNI_COMMAND'] == 'ADD':
    print(json.dumps(conf['prevResult']))
";
/// Script that runs a program as root as in a container, with the node's folders mounted below
/// /mnt.
const CONTAINER: &str = "set -e
mount -t tmpfs none /mnt
mkdir -p /mnt/run/plugins /mnt/etc/cni/net.d
mount --bind ${PLUGINS:-/run/plugins} /mnt/run/plugins
mount --bind /etc/cni/net.d /mnt/etc/cni/net.d
for at in /mnt / /run /etc; do mount -o remount,bind,ro $at; done
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs \"$@\"
";

/// Creates a node. Each entry of `files` is a file name in its configuration folder, and the file
/// in `fixtures` with the content.
fn node(files: &[(&str, &str)]) -> Sandbox {
    let host = Sandbox::new();
    for folder in [BIN, NETWORKS, "/run/flannel"] {
        fs::create_dir_all(folder).expect("a folder");
    }
    let subnet = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
    fs::write("/run/flannel/subnet.env", subnet).expect("flanneld's file");
    for name in ["multus", "multus-shim", "istio-cni", "linkerd-cni"] {
        chained(name);
    }
    for (name, fixture) in files {
        put(name, fixture);
    }
    host
}

fn chained(name: &str) {
    let path = Path::new(BIN).join(name);
    fs::write(&path, CHAINED).expect("a plugin");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("an executable file");
}

fn put(name: &str, fixture: &str) {
    let text = match fixture {
        "10-flannel.conflist" => include_str!("fixtures/10-flannel.conflist"),
        "thick-multus.conf" => include_str!("fixtures/thick-multus.conf"),
        "thick-multus-after-braid.conf" => include_str!("fixtures/thick-multus-after-braid.conf"),
        "thick-multus-istio.conflist" => include_str!("fixtures/thick-multus-istio.conflist"),
        "thin-multus.conf" => include_str!("fixtures/thin-multus.conf"),
        "thin-multus.conflist" => include_str!("fixtures/thin-multus.conflist"),
        "thin-multus-after-braid.conflist" => {
            include_str!("fixtures/thin-multus-after-braid.conflist")
        }
        "thin-multus-istio.conflist" => include_str!("fixtures/thin-multus-istio.conflist"),
        "braid-istio.conflist" => include_str!("fixtures/braid-istio.conflist"),
        other => other,
    };
    fs::write(Path::new(NETWORKS).join(name), text).expect("a configuration");
}

/// Runs `braid install` in the container with a conflist and a kubeconfig, and the arguments `words`.
/// `plugins` is the node's plugin folder.
fn run(words: &[&str], plugins: &str) -> Output {
    let conflist = format!("--conflist={LIST}");
    let files = [
        "--root=/mnt",
        "--kubeconfig=/etc/cni/net.d/braid.d/kubeconfig",
        &conflist,
    ];
    let server = [
        "--credentials=/var/lib/kubelet/x",
        "--server=https://10.96.0.1:443",
    ];
    run_plain(&[&files[..], &server, words].concat(), plugins)
}

/// Runs `braid install` in the container with `words` and no other arguments than the plugin
/// folder.
fn run_plain(words: &[&str], plugins: &str) -> Output {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", CONTAINER, "sh"])
        .arg(binary::braid());
    command
        .args(["install", "--bin-dir=/mnt/run/plugins"])
        .args(words)
        .env("PLUGINS", plugins);
    command.stdin(Stdio::null()).output().expect("unshare")
}

/// Installs braid and returns the plugin list that it has written.
#[track_caller]
fn install() -> Value {
    let output = run(&[], BIN);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    read(LIST)
}

fn read(path: &str) -> Value {
    serde_json::from_slice(&fs::read(path).expect(path)).expect("JSON")
}

/// Returns path and content of every file in the folders that `install` may change.
fn folders() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for folder in [BIN, NETWORKS] {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            all.push((
                path.display().to_string(),
                fs::read(&path).unwrap_or_default(),
            ));
        }
    }
    all.sort();
    all
}

#[track_caller]
fn refused(word: &str) {
    let before = folders();
    let output = run(&[], BIN);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains(word),
        "{said}"
    );
    assert!(folders() == before, "everything is as it was");
}

fn cnitool(host: &Sandbox, verb: &str, network: &Value, pod: &Ns) -> Result<String, String> {
    let network = network.as_str().expect("a name");
    let (tool, pod) = (program::cnitool(), pod.path().display().to_string());
    host.try_run(&format!(
        "env CNI_PATH={BIN} NETCONFPATH={NETWORKS} {} {verb} {network} {pod}",
        tool.display()
    ))
}

/// Attaches and detaches a pod with libcni. Returns the names of the foreign plugins that ran for
/// the ADD.
#[track_caller]
fn attaches(host: &Sandbox, list: &Value) -> Vec<String> {
    let pod = host.pod("a");
    let _ = fs::remove_file("/run/order");
    cnitool(host, "add", &list["name"], &pod).expect("attached");
    let addr = pod.addrs("eth0").concat();
    assert!(addr.starts_with("10.244.1."), "{addr}");
    let order = fs::read_to_string("/run/order").unwrap_or_default();
    cnitool(host, "del", &list["name"], &pod).expect("detached");
    host.end(&pod);
    fs::remove_file(pod.path()).expect("the path of the namespace that ended");
    host.assert_nothing_left();
    order
        .lines()
        .filter_map(|line| line.strip_prefix("ADD "))
        .map(str::to_owned)
        .collect()
}

fn types(list: &Value) -> Vec<&str> {
    let plugins = list["plugins"].as_array().expect("plugins");
    plugins
        .iter()
        .map(|plugin| plugin["type"].as_str().expect("a type"))
        .collect()
}

#[test]
fn flannels_list_becomes_the_default_network() {
    needs_programs!("cnitool", "unshare", "setpriv");
    let host = node(&[("10-flannel.conflist", "10-flannel.conflist")]);
    let list = install();
    assert_eq!(
        list["plugins"][0]["clusterNetwork"],
        "/etc/cni/net.d/10-flannel.conflist"
    );
    assert_eq!(attaches(&host, &list), [""; 0]);
}

#[test]
fn multus_lists_are_taken_over_and_pods_start() {
    needs_programs!("cnitool", "unshare", "setpriv");
    for (name, fixture, chained) in [
        ("00-multus.conf", "thick-multus.conf", &[][..]),
        ("00-multus.conf", "thin-multus.conf", &[]),
        ("00-multus.conflist", "thin-multus.conflist", &[]),
        (
            "00-multus.conflist",
            "thick-multus-istio.conflist",
            &["istio-cni"],
        ),
        (
            "00-multus.conflist",
            "thin-multus-istio.conflist",
            &["istio-cni"],
        ),
    ] {
        let host = node(&[
            ("10-flannel.conflist", "10-flannel.conflist"),
            (name, fixture),
        ]);
        let list = install();
        assert_eq!(types(&list)[1..], *chained, "{fixture}: {list}");
        let default = if fixture.starts_with("thick") {
            "clusterNetwork"
        } else {
            "delegates"
        };
        assert!(
            list["plugins"][0].get(default).is_some(),
            "{fixture}: {list}"
        );
        assert_eq!(list["name"], read(&format!("{NETWORKS}/{name}"))["name"]);
        assert_eq!(attaches(&host, &list), *chained, "{fixture}");
    }
}

#[test]
fn multus_list_delegating_to_braid_keeps_keys_and_gets_the_next_network() {
    needs_programs!("cnitool", "unshare", "setpriv");
    for (name, fixture) in [
        ("00-multus.conf", "thick-multus-after-braid.conf"),
        ("00-multus.conflist", "thin-multus-after-braid.conflist"),
    ] {
        let host = node(&[("10-flannel.conflist", "10-flannel.conflist")]);
        install();
        put(name, fixture);
        let list = install();
        let own = &list["plugins"][0];
        assert_eq!(
            (types(&list), own.get("delegates")),
            (vec!["braid"], None),
            "{list}"
        );
        assert_eq!(
            own["clusterNetwork"], "/etc/cni/net.d/10-flannel.conflist",
            "{list}"
        );
        let key = if fixture.starts_with("thick") {
            ("logLevel", "verbose")
        } else {
            ("globalNamespaces", "default,infra")
        };
        assert_eq!(own[key.0], key.1, "{list}");
        assert_eq!(attaches(&host, &list), [""; 0]);
        assert_eq!(install(), list, "a second time nothing changes");
    }
}

#[test]
fn a_mesh_plugin_that_its_installer_inserted_survives_a_rewrite() {
    needs_programs!("cnitool", "unshare", "setpriv");
    let host = node(&[("10-flannel.conflist", "10-flannel.conflist")]);
    install();
    put("00-braid.conflist", "braid-istio.conflist");
    let list = install();
    assert_eq!(types(&list), ["braid", "istio-cni"]);
    assert_eq!(attaches(&host, &list), ["istio-cni"]);
    // A new default network makes braid rewrite the list.
    put(
        "05-new.conf",
        r#"{"cniVersion":"0.4.0","name":"new","type":"flannel"}"#,
    );
    let list = install();
    assert_eq!(
        (types(&list), &list["name"]),
        (vec!["braid", "istio-cni"], &json!("new"))
    );
    assert_eq!(attaches(&host, &list), ["istio-cni"]);
}

#[test]
fn a_list_that_cannot_work_is_refused_and_nothing_changes() {
    needs_programs!("unshare", "setpriv");
    let _host = node(&[("00-multus.conf", "thick-multus.conf")]);
    refused("clusterNetwork: /etc/cni/net.d/10-flannel.conflist does not exist on the node");
    put("00-multus.conf", "thick-multus-after-braid.conf");
    refused("braid itself");
    put(
        "00-multus.conf",
        r#"{"cniVersion":"0.3.1","name":"n","type":"calico","ipam":{"type":"calico-ipam"}}"#,
    );
    refused("type \"calico\" has no program in /run/plugins");
    put("10-flannel.conflist", "10-flannel.conflist");
    put("00-multus.conf", "thick-multus.conf");
    install();
    fs::remove_file(format!("{NETWORKS}/10-flannel.conflist")).expect("removed");
    refused("clusterNetwork: /etc/cni/net.d/10-flannel.conflist does not exist on the node");
}

#[test]
fn a_mount_of_a_different_node_folder_is_refused() {
    needs_programs!("unshare", "setpriv");
    let _host = node(&[("10-flannel.conflist", "10-flannel.conflist")]);
    fs::create_dir_all("/run/k3s/data/cni").expect("a folder");
    let output = run(&[], "/run/k3s/data/cni");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("is /k3s/data/cni on the node"),
        "{said}"
    );
    assert_eq!(
        fs::read_dir("/run/k3s/data/cni").expect("a folder").count(),
        0
    );
    let before = folders();
    // These are the arguments in an earlier braid.yaml. The scripts would start
    // /mnt/run/plugins/braid, which does not exist on the node.
    let output = run_plain(&[], BIN);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("set --root"),
        "{said}"
    );
    assert!(folders() == before);
    assert!(!Path::new(LIST).exists());
}

#[test]
fn removal_in_the_container_restores_the_node() {
    needs_programs!("unshare", "setpriv");
    let _host = node(&[("10-flannel.conflist", "10-flannel.conflist")]);
    fs::write(format!("{BIN}/bridge"), "a plugin").expect("a file");
    let before = folders();
    install();
    assert!(run(&["--remove"], BIN).status.success());
    assert!(folders() == before);
}

#[test]
fn concurrent_installs_run_one_after_the_other() {
    needs_programs!("unshare", "setpriv");
    let _host = node(&[("10-flannel.conflist", "10-flannel.conflist")]);
    let before = folders();
    let start = |words: &'static [&str]| std::thread::spawn(move || run(words, BIN));
    let all = [[].as_slice(), &[], &[]].map(start);
    for output in all.map(|one| one.join().expect("a thread")) {
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert_eq!(types(&read(LIST)), ["braid"]);
    assert!(run(&["--remove"], BIN).status.success());
    assert!(folders() == before);
}

#[test]
fn the_runtime_does_not_run_plugins_of_the_lists_folder_after_braid() {
    needs_programs!("cnitool", "unshare", "setpriv");
    let host = node(&[("10-flannel.conflist", "10-flannel.conflist")]);
    let list = install();
    assert_eq!(
        list["loadOnlyInlinedPlugins"], true,
        "braid appends them to the network that it names"
    );
    fs::create_dir(format!("{NETWORKS}/cbr0")).expect("a folder");
    put("cbr0/50-linkerd.conf", r#"{"type":"linkerd-cni"}"#);
    assert_eq!(attaches(&host, &list), ["linkerd-cni"], "once");
}

#[test]
fn a_folder_of_an_inlined_list_is_left_to_the_runtime() {
    needs_programs!("cnitool", "unshare", "setpriv");
    let host = node(&[("00-multus.conflist", "thin-multus.conflist")]);
    let list = install();
    assert_eq!(list.get("loadOnlyInlinedPlugins"), None);
    fs::create_dir(format!("{NETWORKS}/multus-cni-network")).expect("a folder");
    put(
        "multus-cni-network/50-linkerd.conf",
        r#"{"type":"linkerd-cni"}"#,
    );
    assert_eq!(attaches(&host, &list), ["linkerd-cni"]);
}
