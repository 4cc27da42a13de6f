//! Plugins in a folder beside a plugin list on disk. Each of them runs exactly once, started either
//! by braid or by the runtime.

use super::networks::cnitool;
use super::{CONF_DIR, Node, Pod, Value, bridged, calls, json, spy};
use std::fs;

/// Creates `folder`, which is beside plugin lists, with the files of `plugins`. Also creates a
/// folder and a file in it that are not plugins.
fn beside(folder: &str, plugins: &[(&str, Value)]) {
    fs::create_dir_all(folder).expect("a folder");
    fs::create_dir_all(format!("{folder}/00-folder.conf")).expect("a folder that is no plugin");
    fs::write(format!("{folder}/00-other.conflist"), "{").expect("a file of another kind");
    for (file, plugin) in plugins {
        fs::write(format!("{folder}/{file}"), plugin.to_string()).expect("a plugin");
    }
}

/// Returns a plugin list with this name, the plugin `spy` and the keys of `more`.
fn spied_list(name: &str, more: &Value) -> Value {
    let mut list = json!({"cniVersion": "1.1.0", "name": name, "plugins": [{"type": "spy"}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        list[key] = value.clone();
    }
    list
}

/// Returns the expected lines of the log of [`calls`]: `verb` followed by each of `calls`.
fn lines(verb: &str, calls: &[&str]) -> Vec<String> {
    calls.iter().map(|call| format!("{verb} {call}")).collect()
}

/// Checks that ADD and CHECK run these plugins in this order, and that DEL runs them in reverse.
#[track_caller]
fn runs(pod: &Pod, plugins: &[&str]) {
    let result = pod.call.add().result();
    assert_eq!(calls(), lines("ADD", plugins));
    pod.call.check(&result).ok();
    assert_eq!(calls(), lines("CHECK", plugins));
    pod.call.del().ok();
    let mut backwards = plugins.to_vec();
    backwards.reverse();
    assert_eq!(calls(), lines("DEL", &backwards));
}

#[test]
fn plugins_of_a_lists_folder_run_after_its_own() {
    let networks = [
        ("listed", json!(null)),
        ("alone", json!(null)),
        ("here", spied_list("here", &json!({}))),
    ];
    let Some(node) = Node::new("beside", &networks) else {
        return;
    };
    let (spy, spy2) = (
        json!({"type": "spy", "name": "other", "cniVersion": "0.3.1"}),
        json!({"type": "spy2"}),
    );
    beside(
        "/etc/cni/default",
        &[("20.conf", spy.clone()), ("10.conf", spy2.clone())],
    );
    for folder in ["listed", "alone", "here"] {
        beside(
            &format!("{CONF_DIR}/{folder}"),
            &[("10.conf", spy2.clone())],
        );
    }
    let listed = spied_list("listed", &json!({}));
    fs::write(format!("{CONF_DIR}/listed.conflist"), listed.to_string()).expect("a list");
    fs::write(
        format!("{CONF_DIR}/alone.conf"),
        super::spy("alone", &json!({})).to_string(),
    )
    .expect("a plugin");
    Node::set_default(&spied_list("default", &json!({})));
    let pod = node.pod("web", "listed,alone,here");
    let default = ["default eth0 spy", "default eth0 spy2", "default eth0 spy"];
    let others = [
        "listed net1 spy",
        "listed net1 spy2",
        "alone net2 spy",
        "here net3 spy",
    ];
    runs(&pod, &[&default[..], &others].concat());
    pod.call.status().ok();
    assert_eq!(
        calls(),
        [
            "STATUS default  spy",
            "STATUS default  spy2",
            "STATUS default  spy"
        ]
    );
    // First a list without plugins, then a list that ignores the folder.
    let alone = json!({"cniVersion": "1.1.0", "name": "default"});
    Node::set_default(&alone);
    runs(&node.pod("none", ""), &default[1..]);
    Node::set_default(&spied_list(
        "default",
        &json!({"loadOnlyInlinedPlugins": true}),
    ));
    runs(&node.pod("inlined", ""), &default[..1]);
    node.assert_nothing_left(&pod);
}

#[test]
fn an_unreadable_plugin_file_fails_the_pod_before_anything_runs() {
    let Some(node) = Node::new("beside-broken", &[]) else {
        return;
    };
    Node::set_default(&spied_list("default", &json!({})));
    for (name, text) in [
        ("half", "{\"type\":"),
        ("typeless", "{}"),
        ("circle", "{\"type\":\"braid\"}"),
    ] {
        fs::create_dir_all("/etc/cni/default").expect("a folder");
        fs::write("/etc/cni/default/10-wrong.conf", text).expect("a file");
        let pod = node.pod(name, "");
        let error = pod.call.add().error();
        assert!(error.msg.contains("default.conflist: "), "{error:?}");
        assert_eq!(calls(), [""; 0], "{name}");
        node.assert_nothing_left(&pod);
    }
    fs::remove_file("/etc/cni/default/10-wrong.conf").expect("the file");
    std::os::unix::fs::symlink("/nowhere", "/etc/cni/default/10-wrong.conf").expect("a link");
    let pod = node.pod("dangling", "");
    let error = pod.call.add().error();
    assert!(
        error.msg.contains("read /etc/cni/default/10-wrong.conf"),
        "{error:?}"
    );
    assert_eq!(calls(), [""; 0]);
    // DEL still works for a pod that was attached earlier.
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}

#[test]
fn an_auxiliary_chain_does_not_repeat_the_default_networks_plugins() {
    let Some(node) = Node::new("auxiliary", &[]) else {
        return;
    };
    let plugins = [("10.conf", spy("x", &json!({"type": "spy2"})))];
    beside("/etc/cni/default", &plugins);
    beside("/etc/cni/vendor", &plugins);
    for (name, is_inlined, chain, expected) in [
        (
            "other",
            false,
            "vendor",
            vec!["default eth0 spy", "default eth0 spy2", "vendor net1 spy2"],
        ),
        (
            "same",
            false,
            "default",
            vec!["default eth0 spy", "default eth0 spy2"],
        ),
        (
            "inlined",
            true,
            "default",
            vec!["default eth0 spy", "default net1 spy2"],
        ),
    ] {
        Node::set_default(&spied_list(
            "default",
            &json!({"loadOnlyInlinedPlugins": is_inlined}),
        ));
        let Pod { name, ns, call } = node.pod(name, "");
        let pod = Pod {
            name,
            ns,
            call: call.with("auxiliaryCNIChainName", chain),
        };
        runs(&pod, &expected);
        node.assert_nothing_left(&pod);
    }
}

#[test]
fn a_runtime_that_runs_the_folder_itself_leaves_nothing_for_braid() {
    let Some(node) = Node::new("by-runtime", &[]) else {
        return;
    };
    let Some(cnitool) = cnitool() else {
        braid_tests::feature::tell_skip(
            "api::by-runtime",
            "needs cnitool, installed by cargo xtask test",
        );
        return;
    };
    let folder = "/etc/cni/net.d";
    beside(
        &format!("{folder}/cbr0"),
        &[("10.conf", json!({"type": "spy2"}))],
    );
    let mut default = bridged(0);
    default["name"] = "cbr0".into();
    fs::write(format!("{folder}/10-default.conflist"), default.to_string())
        .expect("the default network");
    for (pod, name, more) in [
        ("same", "cbr0", json!({})),
        ("inlined", "cbr0", json!({"loadOnlyInlinedPlugins": true})),
        ("other", "pods", json!({})),
    ] {
        let pod = node.pod(pod, "");
        let braid = json!({"type": "braid", "kubeconfig": "/run/kubeconfig",
            "clusterNetwork": format!("{folder}/10-default.conflist")});
        let mut list = json!({"cniVersion": "1.1.0", "name": name, "plugins": [braid]});
        for (key, value) in more.as_object().into_iter().flatten() {
            list[key] = value.clone();
        }
        // This call makes the test's helper install the program into the runtime's folder.
        pod.call.run("VERSION").result();
        fs::write(format!("{folder}/00-pods.conflist"), list.to_string())
            .expect("the runtime's list");
        let args = format!(
            "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=by-runtime;K8S_POD_NAME={}",
            pod.name
        );
        let path = format!("CNI_PATH={}", braid_tests::sandbox::PLUGINS);
        for verb in ["add", "check", "del"] {
            let netns = pod.ns.path().display();
            node.world.sandbox.run(&format!(
                "env {path} {args} {} {verb} {name} {netns}",
                cnitool.display()
            ));
            let verb = verb.to_uppercase();
            assert_eq!(
                calls(),
                [format!("{verb} cbr0 eth0 spy2")],
                "once, by {name} {more}"
            );
        }
        node.assert_nothing_left(&pod);
    }
}
