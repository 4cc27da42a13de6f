//! Calls and the agent's socket: pods start with the agent, without it, and while it or the API
//! server does not answer.

use super::{Agent, Pair, await_true};
use crate::{World, annotations, json, uid};
use braid_core::k8s::{NETWORK_STATUS, NETWORKS};
use braid_tests::{Call, Ns, Value};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

pub(super) const SOCKET: &str = "/run/braid/agent.sock";
/// File with the time at which the agent did not acknowledge a request.
const SILENT: &str = "/run/braid/agent.silent";
/// Folder of the networks for calls without agent and API.
const COPIES: &str = "/var/lib/braid/networks";
/// Log of the system calls of a plugin call.
const TRACE: &str = "/run/trace";

/// A node whose agent serves calls, with the network `lan`.
pub(super) struct Served {
    pub(super) agent: Agent,
    /// After the agent, which runs in its sandbox.
    pub(super) pair: Pair,
}

/// A pod, its network namespace, and the call that attaches it.
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) call: Call,
    pub(super) ns: Rc<Ns>,
}

impl Served {
    pub(super) fn new(test: &str, net: u8) -> Option<Self> {
        let pair = Pair::new(test, net)?;
        allow_objects(&pair);
        pair.world.create_nad("lan", &json!({"config": lan(net)}));
        let agent = pair.start();
        let copy = format!("{COPIES}/{test}_lan.json");
        await_true("the copy of a network", || {
            fs::exists(&copy).is_ok_and(|is| is)
        });
        let world = &pair.world;
        world.kubeconfig(&json!({"token": world.server.token}));
        Some(Self { agent, pair })
    }

    /// Creates a pod of this node, and the call of a runtime that passes no annotations.
    pub(super) fn pod(&self, name: &str, annotations: &Value) -> Pod {
        let world = &self.pair.world;
        let object = world.create(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": self.pair.names[0], "containers": [{"name": "c", "image": "none"}]},
        }));
        let ns = world.sandbox.pod(name);
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={name};K8S_POD_UID={}",
            world.namespace,
            uid(&object)
        );
        let conf = conf().as_object().cloned().expect("an object");
        let mut call = world.sandbox.call("braid", &ns, conf.into()).args(&args);
        call = call.with("kubeconfig", "/run/kubeconfig");
        Pod {
            name: name.to_owned(),
            call,
            ns,
        }
    }

    /// Returns `<verb> <resource>` of each request that calls have sent about this test's objects.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests_of("kube-system:braid")
    }

    /// Returns `<verb> <resource>` of each request that the agent has sent about this test's objects.
    pub(super) fn requests_of_agent(&self) -> Vec<String> {
        self.requests_of(&format!("{}:agent", self.pair.world.namespace))
    }

    fn requests_of(&self, account: &str) -> Vec<String> {
        let audit = self.pair.world.server.audit_of(account);
        let mut lines = Vec::new();
        for event in audit.requests() {
            let object = &event["objectRef"];
            if object["namespace"] == self.pair.world.namespace {
                lines.push(format!("{} {}", event["verb"], object["resource"]).replace('"', ""));
            }
        }
        lines
    }

    /// Sets an annotation of the pod, `key=value`.
    pub(super) fn annotate(&self, pod: &Pod, annotation: &str) {
        let world = &self.pair.world;
        let namespace = format!("--namespace={}", world.namespace);
        let command = [
            "annotate",
            "--overwrite",
            &namespace,
            "pod",
            &pod.name,
            annotation,
        ];
        world.server.kubectl(&command, None);
    }

    /// Waits until the pod's status has these interfaces.
    #[track_caller]
    pub(super) fn await_status(&self, pod: &Pod, interfaces: &[&str]) {
        await_true("the pod's status", || {
            let object = self.pair.world.get("pod", &pod.name);
            let text = annotations(&object)[NETWORK_STATUS].as_str();
            let entries: Value = serde_json::from_str(text.unwrap_or("[]")).expect("JSON");
            let entries = entries.as_array().expect("a list");
            let found: Vec<&Value> = entries.iter().map(|entry| &entry["interface"]).collect();
            found == interfaces
        });
    }

    /// Returns the resident memory of the agent in KiB.
    fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.agent.child.id());
        let status = fs::read_to_string(path).expect("the agent runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let words = line.and_then(|line| line.split_whitespace().nth(1));
        words.and_then(|text| text.parse().ok()).expect("a number")
    }
}

/// While this lives, every connection to the API server fails.
pub(super) struct Cut<'w>(&'w World);

impl<'w> Cut<'w> {
    pub(super) fn new(world: &'w World) -> Self {
        let url = world.proxy.url();
        let port = url.rsplit(':').next().expect("a port");
        for command in [
            "nft add table ip cut".to_owned(),
            "nft add chain ip cut out { type filter hook output priority 0 ; }".to_owned(),
            format!("nft add rule ip cut out tcp dport {port} reject with tcp reset"),
        ] {
            world.sandbox.run(&command);
        }
        Self(world)
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.sandbox.run("nft delete table ip cut");
    }
}

impl Pod {
    /// Lets the runtime pass these annotations.
    pub(super) fn passing(mut self, annotations: &Value) -> Self {
        let config = json!({"io.kubernetes.cri.pod-annotations": annotations});
        self.call = self.call.with("runtimeConfig", config);
        self
    }

    /// Attaches the pod, checks its interfaces, and detaches it.
    #[track_caller]
    fn starts_with(&self, interfaces: &[&str]) {
        self.call.add().result();
        let mut names = self.ns.link_names();
        names.retain(|name| name != "lo");
        assert_eq!(names, interfaces, "{}", self.name);
    }
}

/// Lets the agent read what calls need, and publish.
pub(super) fn allow_objects(pair: &Pair) {
    let name = format!("{}-objects", pair.world.namespace);
    let read = json!(["get", "list", "watch"]);
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": read},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": ["k8s.cni.cncf.io"], "resources": ["network-attachment-definitions", "ipamclaims"], "verbs": read},
    ]);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    });
    let server = pair.world.server;
    server.kubectl(&["create", "-f", "-"], Some(&role));
    let subject = format!("--serviceaccount={}:agent", pair.world.namespace);
    let role = format!("--clusterrole={name}");
    let binding = ["create", "clusterrolebinding", &name, &role, &subject];
    server.kubectl(&binding, None);
}

/// Returns the configuration of the default network.
fn conf() -> Value {
    let routes = json!([{"dst": "0.0.0.0/0"}]);
    let ipam = json!({"type": "host-local", "subnet": "10.250.0.0/24", "routes": routes});
    json!({
        "cniVersion": "1.1.0",
        "name": "pods",
        "type": "braid",
        "plugins": [{"type": "ptp", "ipam": ipam}],
    })
}

/// Returns the text of a network's configuration.
fn lan(net: u8) -> String {
    let ipam = json!({"type": "host-local", "subnet": format!("10.{net}.128.0/24")});
    json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "lan0", "ipam": ipam}).to_string()
}

pub(super) fn asks() -> Value {
    json!({NETWORKS: "lan"})
}

#[test]
fn with_an_agent_no_call_sends_a_request_to_the_api() {
    let Some(node) = Served::new("socket-alive", 91) else {
        return;
    };
    let mode = fs::metadata(SOCKET).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let pods = [
        (node.pod("none", &json!({})), vec!["eth0"]),
        (node.pod("lan", &asks()), vec!["eth0", "net1"]),
        (
            node.pod("told", &asks()).passing(&asks()),
            vec!["eth0", "net1"],
        ),
    ];
    for (pod, interfaces) in &pods {
        pod.starts_with(interfaces);
        node.await_status(pod, interfaces);
    }
    // The runtime's annotations are those at the creation of the sandbox. The agent attaches what
    // was added since.
    let old = node.pod("old", &asks()).passing(&json!({"a": "b"}));
    old.call.add().result();
    node.await_status(&old, &["eth0", "net1"]);
    let absent = node.pod("absent", &json!({NETWORKS: "nowhere"}));
    absent.call.add().refused(7, &["socket-alive/nowhere"]);
    assert_eq!(node.requests(), [""; 0]);
    old.call.del().ok();
    for (pod, _) in &pods {
        pod.call.del().ok();
    }
}

#[test]
fn a_pod_with_another_uid_is_refused_also_by_the_agents_answer() {
    let Some(node) = Served::new("socket-uid", 92) else {
        return;
    };
    let pod = node.pod("web", &asks());
    let args = "K8S_POD_NAMESPACE=socket-uid;K8S_POD_NAME=web;K8S_POD_UID=other";
    let call = pod.call.clone().args(args);
    call.add().refused(7, &["the call is for uid other"]);
    assert_eq!(node.requests(), [""; 0]);
}

#[test]
fn a_stopped_agent_is_waited_for_once_and_a_killed_one_never() {
    let Some(node) = Served::new("socket-stop", 93) else {
        return;
    };
    node.agent.signal("STOP");
    let traced = format!("strace -f -o {TRACE} -e trace=connect,poll");
    let connects = |pod: &Pod| {
        let call = pod.call.clone().under(&traced);
        call.add().result();
        let trace = fs::read_to_string(TRACE).expect("a trace");
        trace.matches("agent.sock").count()
    };
    let [first, third] = ["a", "c"].map(|name| node.pod(name, &asks()));
    assert_eq!(connects(&first), 1);
    assert!(node.requests().contains(&"get pods".to_owned()));
    assert!(fs::exists(SILENT).expect("readable"));
    // On a slow machine, the next call may begin more than a second later.
    let mut others = Vec::new();
    await_true("call that does not wait", || {
        others.push(node.pod(&format!("b{}", others.len()), &asks()));
        fs::write(SILENT, "").expect("a mark");
        others.last().is_some_and(|pod| connects(pod) == 0)
    });
    node.agent.signal("CONT");
    std::thread::sleep(Duration::from_millis(1100));
    let asked = node.requests().len();
    third.starts_with(&["eth0", "net1"]);
    assert_eq!(node.requests().len(), asked);
    let fourth = node.pod("d", &asks());
    let Served { pair, agent } = node;
    agent.kill();
    fourth.starts_with(&["eth0", "net1"]);
    others.extend([first, third, fourth]);
    for pod in others {
        pod.call.del().ok();
    }
    drop(pair);
}

#[test]
fn known_pods_start_without_the_api_and_known_networks_without_both() {
    let Some(mut node) = Served::new("socket-away", 94) else {
        return;
    };
    let [known, told, other, unknown] = ["a", "b", "c", "d"].map(|name| node.pod(name, &asks()));
    // The agent sees the pods before the API is away.
    known.starts_with(&["eth0", "net1"]);
    known.call.del().ok();
    let _cut = Cut::new(&node.pair.world);
    known.starts_with(&["eth0", "net1"]);
    node.agent.child.kill().expect("the agent runs");
    let told = told.passing(&asks());
    told.starts_with(&["eth0", "net1"]);
    // Networks that are not on disk, and pods that only the API knows, have to wait.
    let elsewhere = json!({NETWORKS: "elsewhere"});
    let other = other.passing(&elsewhere);
    other.call.add().refused(11, &["socket-away/elsewhere"]);
    unknown.call.add().refused(11, &["get pod socket-away/d"]);
    for pod in [&known, &told] {
        pod.call.del().ok();
    }
}

#[test]
fn hostile_clients_delay_no_pod_and_cost_little_memory() {
    let Some(node) = Served::new("socket-hostile", 95) else {
        return;
    };
    let pod = node.pod("web", &asks());
    // The first answer brings the agent's usual memory.
    pod.starts_with(&["eth0", "net1"]);
    pod.call.del().ok();
    let before = node.resident();
    let connect = || UnixStream::connect(SOCKET).expect("the agent listens");
    let mut idle: Vec<UnixStream> = (0..200).map(|_| connect()).collect();
    for half in ["o", "objects ns/p", "publish {\"pod\":"] {
        let mut stream = connect();
        stream.write_all(half.as_bytes()).expect("written");
        idle.push(stream);
    }
    for _ in 0..4 {
        // The agent closes the connection in between.
        let _ = connect().write_all(&vec![b'a'; 10 << 20]);
        let _ = connect().write_all(b"\0\xff\n\n\nGET / HTTP/1.1\r\n\r\n");
    }
    let asked = node.requests().len();
    pod.starts_with(&["eth0", "net1"]);
    let more = node.resident().saturating_sub(before);
    assert!(more < 8 << 10, "{more} KiB");
    eprintln!("hostile clients cost {more} KiB");
    assert_eq!(node.requests().len(), asked);
    pod.call.del().ok();
}

#[test]
fn an_agent_costs_a_call_few_system_calls() {
    let Some(node) = Served::new("socket-cost", 96) else {
        return;
    };
    let alone = node.pair.world.sandbox.pod("alone");
    let alone = node.pair.world.sandbox.call("braid", &alone, conf());
    let nothing = node.pod("nothing", &json!({})).passing(&json!({}));
    let asking = node.pod("asking", &json!({}));
    let calls = |call: &Call| {
        // The first ADD of a node does more.
        call.add().result();
        call.del().ok();
        let traced = call.clone().under(&format!("strace -f -qq -o {TRACE}"));
        traced.add().result();
        let trace = fs::read_to_string(TRACE).expect("a trace");
        call.del().ok();
        trace.lines().count()
    };
    let [alone, nothing, asking] = [&alone, &nothing.call, &asking.call].map(calls);
    eprintln!("system calls: {alone} without Kubernetes, {nothing} told, {asking} asking");
    assert!(nothing <= alone + 40, "{nothing} and {alone}");
    assert!(asking <= alone + 50, "{asking} and {alone}");
}
