//! Texts of errors: short, with the cause, and without repetition.

use crate::conf;
use braid_tests::{Answer, Sandbox, Value, json};

/// Largest size of an answer with an error, in bytes, so that a person can read it.
const MOST: usize = 5000;

/// Asserts that the answer is an error of limited size whose text contains each of `words`.
#[track_caller]
fn assert_short(answer: &Answer, words: &[&str]) {
    let error = answer.error();
    let text = format!("{} {}", error.msg, error.details);
    assert!(
        answer.stdout.len() < MOST,
        "{} bytes: {}",
        answer.stdout.len(),
        &text[..MOST / 2]
    );
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[test]
fn a_step_of_many_commands_is_shortened_but_its_cause_is_complete() {
    let host = Sandbox::new();
    // This set has the name of braid's map, so ADD fails. The chain `whole` marks braid's table as
    // complete.
    host.run("nft add table inet braid");
    host.run("nft add chain inet braid whole");
    host.run("nft add rule inet braid whole return");
    host.run("nft add set inet braid hostport4-led { type inet_service ; }");
    let pod = host.pod("a");
    let mappings: Vec<Value> = (0..402)
        .map(|at| json!({"hostPort": 9000 + at, "containerPort": 80, "protocol": "tcp"}))
        .collect();
    let ports = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [conf::bridge(), ports]});
    let call = host
        .call("braid", &pod, list)
        .with("runtimeConfig", json!({"portMappings": mappings}));
    assert_short(&call.add(), &["9000", " more)", "kernel:"]);
}

#[test]
fn output_of_a_foreign_plugin_is_shortened_in_the_middle() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipam", json!({"type": "theirs"}));
    let long = "head -c 500000 /dev/zero | tr '\\0' x";
    for (says, words) in [
        (
            format!("{{ printf begin; {long}; printf end; }} >&2"),
            ["without a message", "begin", "end"],
        ),
        (
            format!("printf begin; {long}; printf end"),
            ["unreadable", "begin", "end"],
        ),
        (
            format!("printf '{{\"code\": 107, \"msg\": \"begin'; {long}; printf 'end\"}}'"),
            ["begin", "end", "more"],
        ),
    ] {
        host.script(
            "theirs",
            &format!("#!/bin/sh\ncat >/dev/null\n{says}\nexit 1\n"),
        );
        assert_short(&call.add(), &words);
        call.del().error();
        host.script("theirs", "#!/bin/sh\ncat >/dev/null\n");
        call.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn long_input_is_not_quoted_in_full() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let long = "x".repeat(100_000);
    let call = host.call("bridge", &pod, conf::bridge());
    assert_short(&call.run(&long), &["unknown CNI_COMMAND"]);
    assert_short(
        &call.clone().args(&format!("K={long}")).add(),
        &["unknown args"],
    );
    assert_short(&call.clone().args(&long).add(), &["invalid pair"]);
    assert_short(&call.clone().env("CNI_NETNS", long.as_str()).add(), &[]);
    assert_short(
        &call
            .clone()
            .env("CNI_PATH", long.as_str())
            .with("ipam", json!({"type": "none"}))
            .add(),
        &["\"none\""],
    );
    assert_short(
        &call
            .with("mode", "x")
            .with("ipMasqBackend", long.as_str())
            .with("ipMasq", true)
            .add(),
        &["ipMasqBackend"],
    );
}

#[test]
fn a_plugin_that_fails_at_add_and_rollback_is_quoted_once() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    host.script(
        "theirs",
        "#!/bin/sh\ncat >/dev/null\necho '{\"code\": 107, \"msg\": \"no such pool\"}'\nexit 1\n",
    );
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipam", json!({"type": "theirs"}));
    let error = call.add().error();
    assert_eq!(error.msg, "no such pool; left behind until DEL or GC");
    assert_eq!(call.del().error().msg, "no such pool");
}

#[test]
fn a_call_without_free_descriptors_returns_one_error_with_its_cause() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    // braid refuses these credentials without sending a request. The call fails with this error as
    // soon as it has enough file descriptors.
    let user =
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}});
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    std::fs::write("/run/kubeconfig", kubeconfig.to_string()).expect("written");
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "kubeconfig": "/run/kubeconfig",
        "network": {"cniVersion": "1.1.0", "name": "pods", "type": "dummy"}});
    let args = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID=7";
    let call = host.call("braid", &pod, conf).args(args);
    let mut refused = Vec::new();
    for most in 4..64 {
        let answer = call
            .clone()
            .under(&format!("prlimit --nofile={most}"))
            .env("RUST_BACKTRACE", "0")
            .add();
        if answer.stdout.is_empty()
            && answer
                .stderr
                .contains("error while loading shared libraries")
        {
            continue;
        }
        let error = answer.error();
        if error.msg.contains("exec plugin") {
            let is_told = |words: &str| refused.iter().any(|msg: &String| msg.contains(words));
            assert!(is_told("start tokio: socketpair: EMFILE"), "{refused:?}");
            return;
        }
        assert_eq!(error.code, 11, "{most} descriptors: {answer:?}");
        refused.push(error.msg);
    }
    panic!("no limit is enough: {refused:?}");
}
