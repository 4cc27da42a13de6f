//! The CNI protocol around the plugins: environment, verbs, and the order of errors.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, json};

fn call(host: &Sandbox, pod: &Ns) -> Call {
    host.call("bridge", pod, conf::bridge())
}

#[test]
fn without_a_command_the_plugin_prints_its_name_and_versions() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let answer = call(&host, &pod).run_as_is();
    assert_eq!((answer.code, answer.stdout.as_str()), (0, ""));
    assert!(
        answer.stderr.starts_with("CNI bridge plugin "),
        "{:?}",
        answer.stderr
    );
    let versions =
        "CNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0\n";
    assert!(answer.stderr.ends_with(versions), "{:?}", answer.stderr);
}

#[test]
fn version_needs_no_environment_and_no_input() {
    Sandbox::new();
    let host = Sandbox::new();
    let answer = Call::new("bridge", json!({}))
        .env("CNI_IFNAME", None)
        .stdin("not json")
        .run("VERSION");
    assert_eq!(answer.stdout.lines().count(), 1);
    assert!(answer.stdout.ends_with('\n'));
    let all = json!([
        "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"
    ]);
    assert_eq!(
        answer.result(),
        json!({"cniVersion": "1.1.0", "supportedVersions": all})
    );
    drop(host);
}

#[test]
fn missing_variables_are_listed_in_order() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let bare = || Call::new("bridge", conf::bridge()).env("CNI_IFNAME", None);
    for verb in ["ADD", "CHECK"] {
        bare().run(verb).refused(
            4,
            &["required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME] missing"],
        );
    }
    bare().run("DEL").refused(
        4,
        &["required env variables [CNI_CONTAINERID,CNI_IFNAME] missing"],
    );
    call(&host, &pod)
        .env("CNI_CONTAINERID", "")
        .add()
        .refused(4, &["[CNI_CONTAINERID] missing"]);
}

#[test]
fn an_unknown_command_is_refused_after_the_configuration() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    call(&host, &pod)
        .run("add")
        .refused(4, &["unknown CNI_COMMAND: add"]);
    call(&host, &pod).stdin(" ").run("FOO").refused(6, &[]);
    call(&host, &pod)
        .with("name", "")
        .run("FOO")
        .refused(7, &["missing network name"]);
}

#[test]
fn an_invalid_name_is_reported_before_a_missing_variable() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = call(&host, &pod).container("");
    call.clone()
        .ifname("eth%d")
        .add()
        .refused(4, &["interface name contains %", "pattern"]);
    call.clone().ifname("eth/0").add().refused(
        4,
        &["interface name contains / or : or whitespace characters"],
    );
    call.clone()
        .ifname("a234567890123456")
        .add()
        .refused(4, &["interface name is too long", "less than 16"]);
    call.clone()
        .ifname("..")
        .add()
        .refused(4, &["interface name is . or .."]);
    call.container("a b")
        .add()
        .refused(4, &["invalid characters in containerID", "a b"]);
}

#[test]
fn the_environment_is_validated_before_the_configuration() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    call(&host, &pod)
        .container("")
        .stdin("{")
        .add()
        .refused(4, &["CNI_CONTAINERID"]);
    call(&host, &pod).stdin("{").add().refused(6, &[]);
    call(&host, &pod)
        .with("name", "a/b")
        .with("cniVersion", "9.9.9")
        .add()
        .refused(7, &["a/b"]);
    call(&host, &pod)
        .with("cniVersion", "9.9.9")
        .with("vlan", 9999)
        .add()
        .refused(1, &["9.9.9"]);
}

#[test]
fn the_host_namespace_is_refused_before_any_change() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    let own = call(&host, &pod).netns(host.host().path());
    own.add().refused(
        8,
        &["plugin's netns and netns from CNI_NETNS should not be the same"],
    );
    own.del().refused(8, &["should not be the same"]);
    before.assert_same(&host.state());
}

#[test]
fn cni_netns_override_allows_the_host_namespace() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    for value in ["1", "true", "TRUE"] {
        let own = call(&host, &pod)
            .netns(host.host().path())
            .env("CNI_NETNS_OVERRIDE", value);
        own.add().result();
        assert_eq!(host.addrs("eth0").len(), 1);
        own.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_missing_namespace_is_refused_before_any_change() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    std::fs::write("/run/plain", "").unwrap();
    let before = host.state();
    for path in ["/run/netns/none", "/run/plain", "/", "/dev/null"] {
        call(&host, &pod)
            .env("CNI_NETNS", path)
            .add()
            .refused(8, &[path]);
    }
    before.assert_same(&host.state());
}

#[test]
fn a_result_is_indented_and_other_verbs_print_nothing() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = call(&host, &pod);
    let answer = call.add();
    assert!(
        answer.stdout.starts_with("{\n    \"") && answer.stdout.ends_with("\n}"),
        "{:?}",
        answer.stdout
    );
    call.check(&answer.result()).ok();
    call.gc(&[("a", "eth0")]).ok();
    call.status().ok();
    call.del().ok();
}

#[test]
fn unknown_cni_args_are_refused_without_ignore_unknown() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    call(&host, &pod)
        .args("K8S_POD_NAME=web")
        .add()
        .refused(4, &["ARGS: unknown args", "K8S_POD_NAME=web"]);
    call(&host, &pod)
        .args("IgnoreUnknown=1;broken")
        .add()
        .refused(4, &["ARGS: invalid pair \"broken\""]);
    call(&host, &pod)
        .args("IgnoreUnknown=maybe")
        .add()
        .refused(4, &["maybe"]);
    before.assert_same(&host.state());
    call(&host, &pod)
        .args("IgnoreUnknown=true;K8S_POD_NAME=web")
        .add()
        .result();
}

#[test]
fn keys_match_in_any_case_and_the_last_wins_and_unknown_ones_are_ignored() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let text = r#"{"CNIVERSION":"1.1.0","Name":"net","TYPE":"bridge","BRIDGE":"brx","bridge":"br0","isgateway":true,
        "someFutureKey":{"a":[1]},"mtu":null,
        "IPAM":{"Type":"host-local","SubNet":"10.1.0.0/24"}}"#;
    host.call("bridge", &pod, json!({}))
        .stdin(text)
        .add()
        .result();
    assert_eq!(host.addrs("br0"), ["10.1.0.1/24"]);
}
