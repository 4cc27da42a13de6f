//! Pods that Multus has attached on a node that now runs braid. The tests run the real Multus with
//! the reference plugins.

use super::{DEFAULT, Node, Pod, Value, bridged, calls, json, spied, spy};
use crate::{token, uid};
use braid_tests::sandbox::PLUGINS;
use braid_tests::{binary, feature};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Folder in which Multus keeps its state by default.
const CNI_DIR: &str = "/var/lib/cni/multus";
const KUBECONFIG: &str = "/run/multus.kubeconfig";

/// Creates a node with three networks: a bridge, a foreign plugin, and a bridge with a foreign
/// IPAM. `None` if Multus, the reference plugins or an API server is missing.
fn node(namespace: &str) -> Option<Node> {
    if binary::multus().is_none() || binary::reference().is_none() {
        feature::tell_skip(
            &format!("api::pods::taken_over::{namespace}"),
            "needs Multus and the reference plugins",
        );
        return None;
    }
    let mut foreign_ipam = bridged(2);
    foreign_ipam["plugins"][0]["ipam"] = json!({"type": "spy2"});
    foreign_ipam["plugins"][0]["says"] =
        json!({"cniVersion": "1.0.0", "ips": [{"address": "10.2.0.7/24"}]});
    let node = Node::new(
        namespace,
        &[
            ("lan", bridged(1)),
            ("a", spy("a", &json!({}))),
            ("b", foreign_ipam),
        ],
    )?;
    let [certificate, key] = &node.world.server.admin;
    let base64 = |text: &str| token::encode(text.as_bytes(), "base64");
    node.world.kubeconfig(
        &json!({"client-certificate-data": base64(certificate), "client-key-data": base64(key)}),
    );
    fs::rename("/run/kubeconfig", KUBECONFIG).expect("Multus' own kubeconfig");
    node.world
        .kubeconfig(&json!({"token": node.world.server.token}));
    Some(node)
}

/// Attaches a pod with Multus. `more` holds additional keys of Multus' configuration.
fn attach(node: &Node, pod: &Pod, more: &Value) {
    let reference = binary::reference()
        .expect("the reference plugins")
        .display();
    let mut conf = json!({"cniVersion": "1.0.0", "name": "pods", "type": "multus", "kubeconfig": KUBECONFIG,
        "clusterNetwork": DEFAULT, "binDir": PLUGINS});
    for (key, value) in more.as_object().into_iter().flatten() {
        conf[key] = value.clone();
    }
    let uid = uid(&node.world.get("pod", &pod.name)).to_owned();
    let of_pod = format!(
        "K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_UID={uid}",
        node.world.namespace, pod.name
    );
    let mut multus = Command::new(binary::multus().expect("Multus"));
    multus
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", &pod.name)
        .env("CNI_NETNS", pod.ns.path());
    multus
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", format!("{reference}:{PLUGINS}"));
    multus.env(
        "CNI_ARGS",
        format!(
            "IgnoreUnknown=1;{of_pod};K8S_POD_INFRA_CONTAINER_ID={}",
            pod.name
        ),
    );
    let mut child = multus
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Multus starts");
    child
        .stdin
        .take()
        .expect("its input")
        .write_all(conf.to_string().as_bytes())
        .expect("its input");
    let output = child.wait_with_output().expect("Multus ends");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert_eq!(
        pod.ns.link_names(),
        ["eth0", "net1", "net3"],
        "a spy makes no link"
    );
}

/// Returns the names of the files that Multus still has in `folder` and in the subfolder `results`.
fn noted(folder: &str) -> Vec<String> {
    let names = [folder.to_owned(), format!("{folder}/results")];
    let names = names
        .iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    let names = names.map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a name")
    });
    let mut names: Vec<String> = names.filter(|name| name != "results").collect();
    names.sort();
    names
}

fn end_bridges(node: &Node) {
    for at in 0..3 {
        node.world
            .sandbox
            .host()
            .run(&format!("ip link del br{at}"));
    }
}

#[test]
fn del_detaches_all_networks_that_multus_attached() {
    let Some(node) = node("from-multus") else {
        return;
    };
    for (at, folder) in [CNI_DIR, "/var/lib/cni/of-multus"].into_iter().enumerate() {
        let pod = node.pod(&format!("web{at}"), "lan,a,b");
        let more = if at == 0 {
            json!({})
        } else {
            json!({"cniDir": folder})
        };
        attach(&node, &pod, &more);
        assert_eq!(noted(folder).len(), 5, "{:?}", noted(folder));
        calls();
        let mut call = pod.call.clone();
        if at == 1 {
            call = call.with("cniDir", json!(folder));
        }
        call.del().ok();
        let told = spied();
        assert_eq!(calls(), ["DEL lan2 net3 spy2", "DEL a net2 spy"]);
        assert_eq!(
            told[1]["conf"]["prevResult"]["interfaces"][0]["name"],
            json!("net2")
        );
        assert!(
            told[1]["ARGS"]
                .as_str()
                .unwrap_or_default()
                .contains(&format!("K8S_POD_NAME={}", pod.name))
        );
        assert_eq!(noted(folder), [""; 0]);
        node.assert_nothing_left(&pod);
        call.del().ok();
        assert_eq!(calls(), [""; 0], "a second time there is nothing to do");
    }
    end_bridges(&node);
}

#[test]
fn gc_detaches_pods_of_multus_that_the_runtime_does_not_list() {
    let Some(node) = node("gc-of-multus") else {
        return;
    };
    let [lives, dead] = ["lives", "dead"].map(|name| node.pod(name, "lan,a,b"));
    for pod in [&lives, &dead] {
        attach(&node, pod, &json!({}));
    }
    calls();
    lives.call.gc(&[("lives", "eth0")]).ok();
    assert_eq!(calls(), ["DEL lan2 net3 spy2", "DEL a net2 spy"]);
    assert!(
        noted(CNI_DIR).iter().all(|name| name.contains("lives")),
        "{:?}",
        noted(CNI_DIR)
    );
    assert_eq!(
        (dead.ns.link_names().len(), lives.ns.link_names().len()),
        (0, 3)
    );
    lives.call.del().ok();
    assert_eq!(noted(CNI_DIR), [""; 0]);
    node.assert_nothing_left(&lives);
    end_bridges(&node);
}

#[test]
fn command_line_gc_detaches_terminated_pods_of_multus() {
    let Some(node) = node("cli-gc-of-multus") else {
        return;
    };
    let [lives, dead] = ["lives", "dead"].map(|name| node.pod(name, "lan,a,b"));
    for pod in [&lives, &dead] {
        attach(&node, pod, &json!({}));
    }
    calls();
    let braid =
        json!({"type": "braid", "kubeconfig": "/run/kubeconfig", "clusterNetwork": DEFAULT});
    let conf = json!({"cniVersion": "1.1.0", "name": "pods", "plugins": [braid, {"type": "mesh"}]});
    fs::create_dir_all("/etc/cni/net.d").expect("the folder of the node's networks");
    fs::write("/etc/cni/net.d/00-braid.conflist", conf.to_string()).expect("the node's network");
    node.world.sandbox.end(&dead.ns);
    let gc = |words: &[&str]| {
        let output = Command::new(binary::braid())
            .arg("gc")
            .args(words)
            .env("CNI_PATH", PLUGINS)
            .output();
        let output = output.expect("braid gc");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let told = gc(&["--dry-run"]);
    assert!(
        told.contains("dead") && told.contains("would be deleted") && !told.contains("lives"),
        "{told}"
    );
    assert_eq!(calls(), [""; 0]);
    gc(&[]);
    assert_eq!(calls(), ["DEL lan2 net3 spy2", "DEL a net2 spy"]);
    assert!(
        noted(CNI_DIR).iter().all(|name| name.contains("lives")),
        "{:?}",
        noted(CNI_DIR)
    );
    assert_eq!(lives.ns.link_names().len(), 3);
    assert!(gc(&[]).contains("nothing to delete"));
    lives.call.del().ok();
    node.assert_nothing_left(&lives);
    end_bridges(&node);
}

#[test]
fn a_failed_foreign_plugin_is_retried_and_does_not_block_others() {
    let Some(node) = node("fails-of-multus") else {
        return;
    };
    let pod = node.pod("web", "lan,a,b");
    attach(&node, &pod, &json!({}));
    calls();
    fs::write("/run/fail.a.DEL", "").expect("a file");
    let error = pod.call.del().error();
    assert!(error.msg.contains("spy was told to fail"), "{error:?}");
    assert_eq!(pod.ns.link_names(), [""; 0], "the others are detached");
    fs::remove_file("/run/fail.a.DEL").expect("the file");
    calls();
    pod.call.del().ok();
    assert!(calls().contains(&"DEL a net2 spy".to_owned()));
    assert_eq!(noted(CNI_DIR), [""; 0]);
    node.assert_nothing_left(&pod);
    end_bridges(&node);
}

#[test]
fn a_damaged_multus_file_loses_no_network_in_libcnis_cache() {
    let Some(node) = node("damaged-multus") else {
        return;
    };
    for (at, text) in ["", "null", "[]", "[{"].into_iter().enumerate() {
        let pod = node.pod(&format!("web{at}"), "lan,a,b");
        attach(&node, &pod, &json!({}));
        fs::write(Path::new(CNI_DIR).join(&pod.name), text).expect("damaged");
        calls();
        pod.call.del().ok();
        let mut done = calls();
        done.sort();
        assert_eq!(done, ["DEL a net2 spy", "DEL lan2 net3 spy2"], "{text:?}");
        assert_eq!(noted(CNI_DIR), [""; 0], "{text:?}");
        node.assert_nothing_left(&pod);
    }
    end_bridges(&node);
}
