//! Annotations and networks written by an attacker. braid must refuse them with a clear error in
//! bounded time and memory, and must not run or write anything.

use super::{NETWORKS, Node, Pod, Value, calls, json, spy};
use braid_core::k8s::DEFAULT_NETWORK;
use braid_tests::{Answer, Call, binary};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest duration of a call with hostile input, even on a busy machine.
const BOUND: Duration = Duration::from_secs(20);
/// Largest memory of a call with hostile input, in KiB.
const PEAK: u64 = 64 << 10;
/// Longest error message that a person still reads, in bytes.
const READABLE: usize = 2000;
/// System calls that start programs or create names in a file system.
const WATCHED: &str = "execve,execveat,open,openat,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,rename,\
    renameat,renameat2";
/// Folders in which braid keeps its state.
const STATE: &[&str] = &["/run/braid", "/var/lib/cni/"];

/// Runs `verb` under strace. Returns its answer and a line for each violation: too much time or
/// memory, a started program, or a file created outside braid's own state.
fn run(node: &Node, call: &Call, verb: &str) -> (Answer, Vec<String>) {
    node.world.sandbox.script("watch", include_str!("watch.py"));
    let watched = format!("/run/cni-bin/watch strace -f -qq -o /run/trace -e trace={WATCHED}");
    let start = Instant::now();
    let answer = call.clone().under(&watched).run(verb);
    let took = start.elapsed();
    let peak: u64 = fs::read_to_string("/run/peak")
        .expect("a peak")
        .parse()
        .expect("a number");
    let trace = fs::read_to_string("/run/trace").expect("a trace");
    let mut harm: Vec<String> = trace
        .lines()
        .skip(1)
        .filter(|line| is_harm(line))
        .map(str::to_owned)
        .collect();
    if took > BOUND || peak > PEAK {
        harm.push(format!("it took {took:?} and {peak} KiB"));
    }
    (answer, harm)
}

/// True if this line of strace shows a system call that starts a program other than the client, or that may create a file
/// outside braid's own state.
fn is_harm(line: &str) -> bool {
    let text = line
        .split_once(' ')
        .map_or(line, |(_pid, text)| text.trim_start());
    if text.starts_with("exec") {
        // The client of the API server, beside the program under test.
        let client = binary::braid().with_file_name("braid-agent");
        return !text.starts_with(&format!("execve(\"{}\"", client.display()));
    }
    if text.starts_with("open") && !text.contains("O_CREAT") {
        return false;
    }
    let is_own =
        |path: &str| STATE.iter().any(|folder| path.starts_with(folder)) && !path.contains("/..");
    // The path is relative to an open folder.
    let is_beside = |path: &str| !path.contains('/') && path != "..";
    text.split('"')
        .skip(1)
        .step_by(2)
        .any(|path| !is_own(path) && !is_beside(path))
}

/// Fails unless ADD of each pod is refused and changes nothing. The error must contain the words
/// beside the pod.
#[track_caller]
fn refuses(node: &Node, pods: &[(Pod, &str)]) {
    let mut faults = Vec::new();
    for (pod, words) in pods {
        let before = node.world.sandbox.state();
        let (answer, mut harm) = run(
            node,
            &pod.call.clone().with("namespaceIsolation", true),
            "ADD",
        );
        let said = answer.stdout.as_str();
        let error: Value = serde_json::from_str(said).unwrap_or_default();
        let msg = error["msg"].as_str().unwrap_or_default();
        // Error code 11 would make the runtime retry, and each retry would fail too.
        if answer.code != 1 || error["code"] == 11 || msg.is_empty() || msg.len() > READABLE {
            harm.push("it is no refusal that a person reads".to_owned());
        }
        if !msg.contains(words) || msg.contains(char::is_control) {
            harm.push(format!("it does not name {words:?}"));
        }
        harm.extend(node.entries(pod));
        harm.extend(node.world.sandbox.leftovers());
        harm.extend(pod.ns.link_names());
        let differences = before.differences(&node.world.sandbox.state());
        harm.extend((!differences.is_empty()).then_some(differences));
        harm.extend(calls());
        let shown: String = said.chars().take(READABLE).collect();
        faults.extend((!harm.is_empty()).then(|| format!("{}: {harm:?}: {shown}", pod.name)));
        node.world.sandbox.end(&pod.ns);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns hostile annotations, each with words of the expected error.
fn annotations() -> Vec<(String, &'static str)> {
    let long = "x".repeat(250 * 1024);
    let item = |key: &str, value: &str| json!([{"name": "a", key: value}]).to_string();
    let many = |key: &str, value: Value, count| {
        json!([{"name": "a", key: vec![value; count]}]).to_string()
    };
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    vec![
        ("..".to_owned(), "\"..\""),
        ("../a".to_owned(), "\"..\""),
        ("a/../b".to_owned(), "a/../b"),
        ("/etc/passwd".to_owned(), "/etc/passwd"),
        ("a@../x".to_owned(), "../x"),
        ("a@x/y".to_owned(), "x/y"),
        ("a@net%d".to_owned(), "net%d"),
        ("a\u{1b}[31m".to_owned(), "item 1"),
        (item("name", "a\0b"), "name"),
        (item("name", "../../kube-system/secrets/x"), "name"),
        (item("namespace", ".."), "namespace"),
        (item("namespace", "a/pods/web?x="), "namespace"),
        (item("namespace", "kube-system"), "namespaceIsolation"),
        (item("interface", "x\0"), "interface"),
        (item("interface", "../../../etc"), "interface"),
        (item("ipam-claim-reference", "../x"), "ipam-claim-reference"),
        (long.clone(), "item 1"),
        (item("name", &long), "name"),
        ("a,".repeat(10_000), "10000"),
        (format!("[{}{{}}]", "{},".repeat(10_000)), "10001"),
        (many("ips", json!("10.0.0.1"), 10_000), "ips"),
        (
            many(
                "portMappings",
                json!({"hostPort": 1, "containerPort": 1}),
                5000,
            ),
            "portMappings",
        ),
        (
            many("default-route", json!("10.0.0.1"), 10_000),
            "default-route",
        ),
        ("[".repeat(100_000), "JSON"),
        (
            format!(r#"[{{"name":"a","cni-args":{{"x":{}}}}}]"#, deep(50_000)),
            "JSON",
        ),
    ]
}

// Requirement S8.
#[test]
fn hostile_annotations_are_refused_before_anything_runs() {
    let Some(node) = Node::new("hostile", &[("a", spy("a", &json!({})))]) else {
        return;
    };
    Node::set_default(&spy("default", &json!({})));
    let mut pods = Vec::new();
    for (number, (text, words)) in annotations().into_iter().enumerate() {
        pods.push((
            node.annotated(&format!("web{number}"), &json!({NETWORKS: text})),
            words,
        ));
    }
    for (number, text) in [
        "..",
        "a/../b",
        "/etc/passwd",
        "kube-system/a",
        "[\"a\"]",
        "a,b",
    ]
    .into_iter()
    .enumerate()
    {
        pods.push((
            node.annotated(&format!("default{number}"), &json!({DEFAULT_NETWORK: text})),
            "",
        ));
    }
    refuses(&node, &pods);
    let events = node.events();
    assert!(
        events
            .iter()
            .all(|event| event.len() < READABLE && !event.contains(char::is_control)),
        "{events:?}"
    );
}

#[test]
fn hostile_networks_are_refused_before_anything_runs() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let with_deep = format!(
        r#"{{"cniVersion":"1.0.0","name":"x","type":"spy","x":{}}}"#,
        deep(100_000)
    );
    let many = json!({"cniVersion": "1.0.0", "name": "x", "plugins": vec![json!({"type": "spy"}); 10_000]});
    let conf = |key: &str, value: &str| {
        let mut conf = spy("x", &json!({}));
        conf[key] = value.into();
        conf
    };
    let of_ipam = |kind: &str| json!({"cniVersion": "1.0.0", "name": "x", "type": "bridge", "bridge": "br9", "ipam": {"type": kind}});
    let networks = [
        ("type-up", conf("type", "../spy")),
        ("type-path", conf("type", "/run/cni-bin/spy")),
        ("type-dots", conf("type", "..")),
        ("type-nul", conf("type", "spy\0")),
        ("type-none", conf("type", "")),
        ("type-long", conf("type", &"x".repeat(1 << 20))),
        ("ipam-up", of_ipam("../spy")),
        ("ipam-path", of_ipam("/bin/sh")),
        ("ipam-nul", of_ipam("a\0b")),
        ("name-up", conf("name", "../../../../etc/x")),
        ("name-path", conf("name", "a/b")),
        ("name-nul", conf("name", "a\0b")),
        ("name-long", conf("name", &"/".repeat(1 << 20))),
        ("version", conf("cniVersion", "9.9.9")),
        ("deep", json!(with_deep)),
        ("many", many),
        ("broken", json!("{")),
        ("list", json!("[]")),
    ];
    let Some(node) = Node::new("hostile-nads", &networks) else {
        return;
    };
    Node::set_default(&spy("default", &json!({})));
    let names: Vec<String> = networks
        .iter()
        .map(|(name, _)| format!("network hostile-nads/{name}"))
        .collect();
    let pods = networks
        .iter()
        .zip(&names)
        .map(|((name, _), words)| (node.pod(name, name), words.as_str()));
    refuses(&node, &pods.collect::<Vec<_>>());
}

#[test]
fn a_hostile_resource_or_device_name_cannot_reach_a_file() {
    let can = json!({"capabilities": {"deviceID": true}});
    let Some(node) = Node::new(
        "hostile-devices",
        &[("vf", spy("vf", &can)), ("up", spy("up", &can))],
    ) else {
        return;
    };
    Node::set_default(&spy("default", &json!({})));
    for (nad, resource) in [("vf", "example.com/vf"), ("up", "../../../../etc/x")] {
        let annotation = format!("k8s.v1.cni.cncf.io/resourceName={resource}");
        node.world.server.kubectl(
            &[
                "annotate",
                "net-attach-def",
                nad,
                "-n",
                "hostile-devices",
                &annotation,
            ],
            None,
        );
    }
    let asks = |name: &str, device: &str| json!([{"name": name, "deviceID": device}]).to_string();
    let up = "../../../../etc/passwd";
    let pods = [
        (node.pod("up", &asks("vf", up)), up),
        (node.pod("nul", &asks("vf", "a\0b")), "device"),
    ];
    refuses(&node, &pods);
    let pod = node.pod("resource", &asks("up", "0000:18:02.1"));
    pod.call.add().result();
    pod.call.del().ok();
    assert_eq!(calls().len(), 4);
    assert!(!Path::new("/run/k8s.cni.cncf.io").exists() && !Path::new("/etc/x").exists());
    node.assert_nothing_left(&pod);
}

#[test]
fn a_network_of_a_mebibyte_is_attached_in_bounded_time() {
    let Some(node) = Node::new(
        "large",
        &[(
            "large",
            spy("large", &json!({"padding": "x".repeat(1 << 20)})),
        )],
    ) else {
        return;
    };
    let pod = node.pod("web", "large");
    let start = Instant::now();
    pod.call.add().result();
    pod.call.del().ok();
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    assert_eq!(calls(), ["ADD large net1 spy", "DEL large net1 spy"]);
    node.assert_nothing_left(&pod);
}
