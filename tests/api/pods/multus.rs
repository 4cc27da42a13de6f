//! Known faults of Multus that braid must not have. `docs/conformance.md` lists the faults and
//! their tests, in this file and in others.

use super::{CONF_DIR, DEFAULT, NETWORKS, Node, Value, bridged, calls, json, spied, spy};
use braid_core::k8s::DEFAULT_NETWORK;
use std::fs;
use std::time::{Duration, Instant};

/// Returns the configuration of a spy network in CNI version 1.1.0, which has STATUS.
fn newer(name: &str, more: &Value) -> Value {
    let mut conf = spy(name, more);
    conf["cniVersion"] = "1.1.0".into();
    conf
}

#[test]
fn the_runtimes_config_and_arguments_all_reach_the_default_network() {
    let Some(node) = Node::new("offered", &[]) else {
        return;
    };
    let offered = json!({"dns": {"servers": ["10.0.0.53"]}, "ipRanges": [[{"subnet": "10.7.0.0/24"}]], "aliases": {"n": ["a"]},
        "cgroupPath": "/kubepods/x", "org.example/new": {"big": 9_007_199_254_740_993_u64}});
    let can: Value = offered
        .as_object()
        .expect("an object")
        .keys()
        .map(|key| (key.clone(), json!(true)))
        .collect();
    Node::set_default(&spy("default", &json!({"capabilities": can})));
    let pod = node.annotated("web", &json!({}));
    let uid = node.world.get("pod", "web")["metadata"]["uid"]
        .as_str()
        .expect("a uid")
        .to_owned();
    let args = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=offered;K8S_POD_NAME=web;K8S_POD_UID={uid};MORE=a=b;"
    );
    pod.call
        .clone()
        .args(&args)
        .with("runtimeConfig", offered.clone())
        .add()
        .result();
    let call = spied().remove(0);
    assert_eq!(call["conf"]["runtimeConfig"], offered);
    assert_eq!(call["ARGS"], args, "a value with =, and a ; at the end");
    pod.call.clone().args(&args).del().ok();
}

#[test]
fn requests_to_the_default_network_are_in_runtime_config() {
    let can = json!({"capabilities": {"ips": true, "mac": true}});
    let says = |ifname: &str| {
        let interface =
            json!({"name": ifname, "sandbox": "/run/netns/web", "mac": "02:00:00:00:00:07"});
        json!({"cniVersion": "1.0.0", "interfaces": [interface], "ips": [{"address": "10.9.0.7/24", "interface": 0}]})
    };
    let mut main = spy("main", &can);
    main["says"] = says("eth0");
    let Some(node) = Node::new("own-default", &[("main", main)]) else {
        return;
    };
    let asked = json!([{"name": "main", "namespace": "own-default", "ips": ["10.9.0.7/24"], "mac": "02:00:00:00:00:07"}]);
    let pod = node.annotated("web", &json!({DEFAULT_NETWORK: asked.to_string()}));
    pod.call.add().result();
    let runtime = spied()[0]["conf"]["runtimeConfig"].clone();
    assert_eq!(
        runtime,
        json!({"ips": ["10.9.0.7/24"], "mac": "02:00:00:00:00:07"})
    );
    assert_eq!(node.entries(&pod), ["main eth0 true"]);
    pod.call.del().ok();
}

#[test]
fn a_pod_is_identified_by_namespace_and_uid_not_by_name() {
    let Some(node) = Node::new("named", &[("lan", bridged(1))]) else {
        return;
    };
    fs::write(
        format!("{CONF_DIR}/more.conf"),
        spy("more", &json!({})).to_string(),
    )
    .expect("a network");
    let settings = |pod: &super::Pod, system: &str| {
        pod.call
            .clone()
            .with("defaultNetworks", json!(["more"]))
            .with("systemNamespaces", json!([system]))
    };
    // First a pod that is named like a system namespace, then a pod in a system namespace. Both
    // must get a status.
    for (name, system, entries) in [
        (
            "kube-system",
            "kube-system",
            vec!["default eth0 true", "more net1 false"],
        ),
        ("web", "named", vec!["default eth0 true"]),
    ] {
        let pod = node.annotated(name, &json!({}));
        let call = settings(&pod, system);
        call.add().result();
        assert_eq!(node.entries(&pod), entries, "{name}");
        call.del().ok();
        node.assert_nothing_left(&pod);
    }
    // The kubelet and the API server have different UIDs for a static pod. The kubelet's is in the
    // annotations of the mirror pod.
    let mirrored = |name: &str, uid: &str| {
        let annotations = json!({
            "kubernetes.io/config.source": "file",
            "kubernetes.io/config.hash": uid,
            "kubernetes.io/config.mirror": uid,
            NETWORKS: "lan",
        });
        let pod = node.world.create(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "none"}]},
        }));
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=named;K8S_POD_NAME={name};K8S_POD_UID=of-the-file"
        );
        let pod = node.container(&pod);
        let call = pod.call.clone().args(&args);
        (pod, call)
    };
    let (pod, call) = mirrored("static", "of-the-file");
    call.add().result();
    assert_eq!(node.entries(&pod), ["default eth0 true", "lan net1 false"]);
    call.del().ok();
    node.assert_nothing_left(&pod);
    let (pod, call) = mirrored("earlier", "of-an-earlier-file");
    let why = ["pod named/earlier", "the call is for uid of-the-file"];
    call.add().refused(7, &why);
    call.del().ok();
    node.assert_nothing_left(&pod);
}

#[test]
fn a_del_error_about_a_missing_file_is_still_an_error() {
    let network = spy(
        "a",
        &json!({"msg": "open /var/lib/x: no such file or directory"}),
    );
    let Some(node) = Node::new("missing-file", &[("a", network)]) else {
        return;
    };
    let pod = node.pod("web", "a");
    pod.call.add().result();
    fs::write("/run/fail.a.DEL", "").expect("a file");
    let error = pod.call.del().error();
    assert!(error.msg.contains("no such file or directory"), "{error:?}");
    fs::remove_file("/run/fail.a.DEL").expect("the file");
    calls();
    pod.call.del().ok();
    assert_eq!(calls(), ["DEL a net1 spy"], "it is tried again");
    node.assert_nothing_left(&pod);
}

#[test]
fn damaged_record_del_leaves_nothing_of_the_default_network() {
    let Some(node) = Node::new("damaged", &[]) else {
        return;
    };
    let names = ["empty", "cut", "list", "null"];
    let pods = node.pods(&names.map(|name| (name.to_owned(), "")));
    for (pod, text) in pods.iter().zip(["", "{\"key\":", "[]", "null"]) {
        pod.call.add().result();
        let folder = format!("/run/braid/attachments/{}", pod.name);
        let record = fs::read_dir(&folder)
            .expect("records")
            .next()
            .expect("a record")
            .expect("its entry")
            .path();
        fs::write(&record, text).expect("damaged");
        pod.call.del().ok();
        assert!(!record.exists(), "{text:?} is left");
        pod.call.gc(&[]).ok();
        node.assert_nothing_left(pod);
    }
}

#[test]
fn damaged_record_del_or_gc_leaves_nothing_of_any_network() {
    let Some(node) = Node::new("damaged-networks", &[("lan", bridged(1))]) else {
        return;
    };
    let names = ["del", "gc"];
    let pods = node.pods(&names.map(|name| (name.to_owned(), "lan")));
    for (pod, verb) in pods.iter().zip(names) {
        pod.call.add().result();
        let folder = format!("/run/braid/attachments/{}", pod.name);
        let record = fs::read_dir(&folder)
            .expect("records")
            .next()
            .expect("a record")
            .expect("its entry")
            .path();
        fs::write(&record, "{").expect("damaged");
        match verb {
            "del" => pod.call.del().ok(),
            _ => pod.call.gc(&[]).ok(),
        }
        node.assert_nothing_left(pod);
    }
}

#[test]
fn check_reports_faults_of_any_network() {
    let Some(node) = Node::new(
        "checked",
        &[("lan", bridged(1)), ("a", spy("a", &json!({})))],
    ) else {
        return;
    };
    let pod = node.pod("web", "lan,a");
    let result = pod.call.add().result();
    pod.call.check(&result).ok();
    fs::write("/run/fail.a.CHECK", "").expect("a file");
    let error = pod.call.check(&result).error();
    assert!(error.msg.contains("spy was told to fail"), "{error:?}");
    fs::remove_file("/run/fail.a.CHECK").expect("the file");
    pod.ns.run("ip addr flush dev net1");
    let error = pod.call.check(&result).error();
    assert!(error.msg.contains("net1"), "{error:?}");
    pod.ns.run("ip link del net1");
    let error = pod.call.check(&result).error();
    assert!(error.msg.contains("net1"), "{error:?}");
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}

#[test]
fn the_default_networks_file_is_reread_on_each_call() {
    let Some(node) = Node::new("read-anew", &[]) else {
        return;
    };
    let folder = "/etc/cni/default.d";
    fs::create_dir_all(folder).expect("a folder");
    fs::write(
        format!("{folder}/50-old.conf"),
        spy("old", &json!({})).to_string(),
    )
    .expect("a network");
    let of_folder = |pod: &super::Pod| pod.call.clone().with("clusterNetwork", folder);
    let pods = node.pods(&["first", "half", "second"].map(|name| (name.to_owned(), "")));
    of_folder(&pods[0]).add().result();
    // A network whose file name sorts first appears, at first half written and then complete.
    let text = spy("new", &json!({})).to_string();
    fs::write(format!("{folder}/10-new.conf"), &text[..text.len() / 2]).expect("half a network");
    let error = of_folder(&pods[1]).add().error();
    assert!(error.msg.contains("10-new.conf"), "{error:?}");
    of_folder(&pods[1]).status().refused(50, &["10-new.conf"]);
    fs::write(format!("{folder}/10-new.conf"), &text).expect("the network");
    of_folder(&pods[1]).status().ok();
    of_folder(&pods[2]).add().result();
    assert_eq!(
        calls(),
        ["ADD old eth0 spy", "STATUS new  spy", "ADD new eth0 spy"]
    );
    for pod in [&pods[0], &pods[2]] {
        of_folder(pod).del().ok();
    }
    assert_eq!(
        calls(),
        ["DEL old eth0 spy", "DEL new eth0 spy"],
        "each as it was attached"
    );
    assert_eq!(
        fs::read_dir(folder).expect("the folder").count(),
        2,
        "braid writes nothing there"
    );
    node.assert_nothing_left(&pods[0]);
}

#[test]
fn status_calls_every_plugin_of_the_default_network_immediately() {
    let Some(node) = Node::new("asked-status", &[]) else {
        return;
    };
    let plugins = json!([{"type": "spy"}, {"type": "spy2"}]);
    let list = json!({"cniVersion": "1.1.0", "name": "default", "plugins": plugins});
    Node::set_default(&list);
    let pod = node.annotated("web", &json!({}));
    let start = Instant::now();
    for _ in 0..5 {
        pod.call.status().ok();
    }
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    let calls = calls();
    assert_eq!(
        (calls.len(), &calls[0][..], &calls[1][..]),
        (10, "STATUS default  spy", "STATUS default  spy2")
    );
    Node::set_default(&newer("default", &json!({"fail": "STATUS"})));
    let error = pod.call.status().error();
    assert!(error.msg.contains("spy was told to fail"), "{error:?}");
    fs::remove_file(DEFAULT).expect("the default network");
    pod.call.status().refused(50, &[DEFAULT]);
}

#[test]
fn an_existing_interface_is_an_error_and_is_kept() {
    let Some(node) = Node::new("there", &[("lan", bridged(1))]) else {
        return;
    };
    let pod = node.pod("web", "lan");
    pod.ns
        .run("ip link add net1 address 02:00:00:00:00:99 type veth peer name other");
    let error = pod.call.add().error();
    assert!(error.msg.contains("net1"), "{error:?}");
    assert_eq!(pod.ns.the_link("net1")["address"], "02:00:00:00:00:99");
    assert_eq!(pod.ns.link_names().len(), 2, "no eth0");
    node.world.sandbox.assert_nothing_left();
    // The interrupted attempt does not block the next ADD.
    pod.ns.run("ip link del net1");
    pod.call.add().result();
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}

#[test]
fn a_default_route_without_gateway_has_no_gateway_in_the_status() {
    let interface = json!({"name": "net1", "sandbox": "/run/netns/web"});
    let says = json!({"cniVersion": "1.0.0", "interfaces": [interface], "ips": [{"address": "10.4.0.2/24", "interface": 0}],
        "routes": [{"dst": "0.0.0.0/0"}]});
    let Some(node) = Node::new(
        "gatewayless",
        &[("direct", spy("direct", &json!({"says": says})))],
    ) else {
        return;
    };
    let pod = node.pod("web", "direct");
    pod.call.add().result();
    let entry = node.status(&pod).remove(1);
    assert!(
        !entry.to_string().contains("nil") && entry["gateway"].is_null(),
        "{entry}"
    );
    pod.call.del().ok();
}
