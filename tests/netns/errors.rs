//! The text of an error: short enough to be read, the cause in it, and nothing said twice.

use crate::conf;
use braid_tests::{Answer, Sandbox, Value, json};

/// More than this nobody reads, in bytes.
const MOST: usize = 5000;

/// An error with all of these words that is short.
#[track_caller]
fn is_short(answer: &Answer, words: &[&str]) {
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
fn a_step_of_many_commands_is_cut_and_its_cause_is_not() {
    let host = Sandbox::new();
    // A table in which the map is something else, whole as far as anybody can see.
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
    is_short(&call.add(), &["9000", " more)", "kernel:"]);
}

#[test]
fn what_a_foreign_plugin_says_is_cut_in_the_middle() {
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
        is_short(&call.add(), &words);
        call.del().error();
        host.script("theirs", "#!/bin/sh\ncat >/dev/null\n");
        call.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn what_was_typed_is_not_repeated_without_end() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let long = "x".repeat(100_000);
    let call = host.call("bridge", &pod, conf::bridge());
    is_short(&call.run(&long), &["unknown CNI_COMMAND"]);
    is_short(
        &call.clone().args(&format!("K={long}")).add(),
        &["unknown args"],
    );
    is_short(&call.clone().args(&long).add(), &["invalid pair"]);
    is_short(&call.clone().env("CNI_NETNS", long.as_str()).add(), &[]);
    is_short(
        &call
            .clone()
            .env("CNI_PATH", long.as_str())
            .with("ipam", json!({"type": "none"}))
            .add(),
        &["\"none\""],
    );
    is_short(
        &call
            .with("mode", "x")
            .with("ipMasqBackend", long.as_str())
            .with("ipMasq", true)
            .add(),
        &["ipMasqBackend"],
    );
}

#[test]
fn a_plugin_that_fails_at_add_and_at_taking_it_back_is_quoted_once() {
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
fn a_call_that_gets_no_descriptors_answers_once_and_names_what_was_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    // Credentials that braid refuses: nothing is asked, and the call ends as soon as there are
    // enough descriptors.
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
