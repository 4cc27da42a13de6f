//! The IPAM `whereabouts` without an agent: addresses in the pools of a real API server. Three
//! modules run the real Whereabouts beside braid:
//!
//! ```text
//!  forms    each form of the configuration: result and objects of both programs
//!  mixed    containers of both programs in one pool
//!  faults   faults of Whereabouts, and their absence in braid
//! ```

mod claims;
mod command;
mod examples;
mod faults;
mod finish;
mod forms;
mod lost;
mod mixed;
mod nodes;
mod peers;
mod probe;
mod slow;

use crate::agent::metrics::{scrape, value};
use crate::agent::{Agent, await_true};
use crate::proxy::Fault;
use crate::server::Server;
use crate::{World, json};
use braid_testbed::sh;
use braid_tests::{Call, Ns, Value, binary};
use std::path::Path;
use std::process::{Command, Output};
use std::rc::Rc;
use std::sync::Once;

const NAMESPACE: &str = "kube-system";
/// The kinds are applied once: two of `kubectl apply` at the same time fail.
static KINDS: Once = Once::new();

/// A node, with Whereabouts' kinds on the API server.
struct Node {
    world: World,
    /// Path of the kubeconfig of the node's account, with objects in [`NAMESPACE`].
    kubeconfig: String,
    /// User entry of this kubeconfig.
    user: Value,
}

impl Node {
    fn new(test: &str) -> Option<Self> {
        Self::with(test, Fault::None)
    }

    /// Like [`Node::new`], with this fault on its connections to the API server.
    fn with(test: &str, fault: Fault) -> Option<Self> {
        let world = World::with(test, Vec::new(), fault)?;
        let server = world.server;
        KINDS.call_once(|| {
            let manifest = sh::root().join("deploy/ipam.yaml");
            server.kubectl(&["apply", "-f", &manifest.to_string_lossy()], None);
            let kinds = ["ippools", "overlappingrangeipreservations"];
            let kinds = kinds.map(|kind| format!("crd/{kind}.whereabouts.cni.cncf.io"));
            let wait = ["wait", "--for=condition=Established", &kinds[0], &kinds[1]];
            server.kubectl(&wait, None);
        });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": test}});
        server.kubectl(&["create", "-f", "-"], Some(&node));
        // An account with these rights and no others, as Whereabouts has one.
        let account = ["create", "serviceaccount", test, "-n", NAMESPACE];
        server.kubectl(&account, None);
        let pods = [
            "create",
            "clusterrole",
            test,
            "--verb=get",
            "--resource=pods",
        ];
        server.kubectl(&pods, None);
        let subject = format!("--serviceaccount={NAMESPACE}:{test}");
        for role in ["braid-ipam", test] {
            let (name, role) = (format!("{test}-{role}"), format!("--clusterrole={role}"));
            let bind = ["create", "clusterrolebinding", &name, &role, &subject];
            server.kubectl(&bind, None);
        }
        let token = server.create_token(test);
        let user = json!({"token": token.trim()});
        let kubeconfig = world.kubeconfig(&user);
        let kubeconfig = kubeconfig.display().to_string();
        Some(Self {
            world,
            kubeconfig,
            user,
        })
    }

    /// Returns a pod of this node and a call that attaches it to a network with these keys of `ipam`.
    fn pod(&self, name: &str, ipam: &Value) -> (Rc<Ns>, Call) {
        let mut all = json!({
            "type": "whereabouts",
            "kubernetes": {"kubeconfig": self.kubeconfig},
        });
        for (key, value) in ipam.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        let conf = json!({
            "cniVersion": "1.0.0",
            "name": "lan",
            "type": "bridge",
            "bridge": "lan0",
            "ipam": all,
        });
        self.pod_of(name, "bridge", conf)
    }

    /// Returns a pod of this node and a call of a plugin that attaches it to a network.
    fn pod_of(&self, name: &str, plugin: &str, conf: Value) -> (Rc<Ns>, Call) {
        let mut spec = json!({"containers": [{"name": "c", "image": "none"}]});
        spec["nodeName"] = self.world.namespace.clone().into();
        self.world.create(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": spec,
        }));
        let ns = self.world.sandbox.pod(name);
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={name}",
            self.world.namespace
        );
        let call = self.world.sandbox.call(plugin, &ns, conf);
        (ns, call.env("CNI_ARGS", &*args))
    }

    /// Moves the pools of this node from [`NAMESPACE`] to its own namespace: other tests have none there.
    fn alone(&self) {
        let text = std::fs::read(&self.kubeconfig).expect("a kubeconfig");
        let mut config: Value = serde_json::from_slice(&text).expect("JSON");
        let namespace = self.world.namespace.clone();
        config["contexts"][0]["context"]["namespace"] = namespace.into();
        std::fs::write(&self.kubeconfig, config.to_string()).expect("written");
    }

    /// Lets the node's account do everything.
    fn become_admin(&self) {
        let name = &self.world.namespace;
        let subject = format!("--serviceaccount={NAMESPACE}:{name}");
        let binding = format!("{name}-admin");
        let bind = [
            "create",
            "clusterrolebinding",
            &binding,
            "--clusterrole=cluster-admin",
            &subject,
        ];
        self.world.server.kubectl(&bind, None);
    }

    fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let get = ["get", kind, name, "-n", NAMESPACE, "-o", "json"];
        let output = self.world.server.try_kubectl(&get, None);
        let is_found = output.status.success();
        is_found.then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// Runs `braid ipam` with the node's account.
    fn ipam(&self, words: &[&str]) -> Output {
        Command::new(binary::braid())
            .arg("ipam")
            .args(words)
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .expect("braid ipam")
    }

    /// Returns the entries of a pool: offset and container id.
    fn entries(&self, pool: &str) -> Vec<(String, String)> {
        let pool = self.get("ippools", pool).expect("a pool");
        let entries = pool["spec"]["allocations"].as_object().expect("entries");
        let id = |entry: &Value| entry["id"].as_str().unwrap_or_default().to_owned();
        entries
            .iter()
            .map(|(at, entry)| (at.clone(), id(entry)))
            .collect()
    }
}

/// Returns the names of all reservations, a line each.
fn reservations(server: &Server) -> String {
    let kind = "overlappingrangeipreservations";
    server.kubectl(&["get", kind, "-n", NAMESPACE, "-o", "name"], None)
}

fn addresses(result: &Value) -> Vec<&str> {
    let ips = result["ips"].as_array().expect("addresses");
    ips.iter()
        .map(|ip| ip["address"].as_str().expect("an address"))
        .collect()
}

#[test]
fn an_address_is_in_the_pool_and_reserved_while_its_container_lives() {
    let Some(node) = Node::new("whereabouts-one") else {
        return;
    };
    let ipam = json!({"range": "10.231.0.0/29", "gateway": "10.231.0.1"});
    let (first, call) = node.pod("first", &ipam);
    let result = call.add().result();
    assert_eq!(addresses(&result), ["10.231.0.2/29"]);
    assert_eq!(first.addrs("eth0"), ["10.231.0.2/29"]);
    let (_second, second) = node.pod("second", &ipam);
    assert_eq!(addresses(&second.add().result()), ["10.231.0.3/29"]);
    let entries = node.entries("10.231.0.0-29");
    assert_eq!(entries.len(), 2);
    let reservation = node.get("overlappingrangeipreservations", "10.231.0.2");
    let reservation = reservation.expect("a reservation");
    assert_eq!(reservation["spec"]["containerid"], entries[0].1.as_str());
    call.check(&result).ok();
    call.del().ok();
    assert_eq!(node.entries("10.231.0.0-29"), entries[1..]);
    assert_eq!(
        node.get("overlappingrangeipreservations", "10.231.0.2"),
        None
    );
    call.del().ok();
    // The pool gives out all its addresses, and names itself when it is full.
    let mut calls = vec![second];
    for number in 0..4 {
        let (_ns, call) = node.pod(&format!("more-{number}"), &ipam);
        call.add().result();
        calls.push(call);
    }
    let (_ns, last) = node.pod("last", &ipam);
    let error = last.add();
    assert!(error.code != 0 && error.stdout.contains("IPPool 10.231.0.0-29"));
    last.del().ok();
    for call in calls {
        call.del().ok();
    }
    assert_eq!(node.entries("10.231.0.0-29"), []);
}

#[test]
fn a_del_without_the_api_server_succeeds_and_the_next_call_gives_the_address_back() {
    let Some(node) = Node::new("whereabouts-owed") else {
        return;
    };
    let ipam = json!({"range": "10.232.0.0/29", "enable_overlapping_ranges": false});
    let (_first, first) = node.pod("first", &ipam);
    first.add().result();
    let (_second, second) = node.pod("second", &ipam);
    second.add().result();
    let kubeconfig = std::fs::read(&node.kubeconfig).expect("a kubeconfig");
    std::fs::remove_file(&node.kubeconfig).expect("removed");
    first.del().ok();
    assert_eq!(node.entries("10.232.0.0-29").len(), 2);
    std::fs::write(&node.kubeconfig, kubeconfig).expect("written");
    second.del().ok();
    assert_eq!(node.entries("10.232.0.0-29"), []);
}

#[test]
fn an_address_of_each_range_or_of_the_first_free_one_and_requested_ones() {
    let Some(node) = Node::new("whereabouts-ranges") else {
        return;
    };
    let both = json!({"ipRanges": [{"range": "10.233.0.0/29"}, {"range": "fd33::/125"}]});
    let (_each, each) = node.pod("each", &both);
    let result = each.add().result();
    assert_eq!(addresses(&result), ["10.233.0.1/29", "fd33::1/125"]);
    let first = json!({
        "allocation": "first",
        "network_name": "other",
        "ipRanges": [{"range": "10.233.0.4/31"}, {"range": "10.233.1.0/29"}],
    });
    let mut calls = Vec::new();
    for (name, expected) in [
        ("a", "10.233.0.4/31"),
        ("b", "10.233.0.5/31"),
        ("c", "10.233.1.1/29"),
    ] {
        let (_ns, call) = node.pod(name, &first);
        assert_eq!(addresses(&call.add().result()), [expected]);
        calls.push(call);
    }
    let (_ns, call) = node.pod("asks", &json!({"range": "10.233.0.0/29"}));
    let call = call.with("args", json!({"cni": {"ips": ["10.233.0.6"]}}));
    assert_eq!(addresses(&call.add().result()), ["10.233.0.6/29"]);
    let (_ns, again) = node.pod("again", &json!({"range": "10.233.0.0/29"}));
    let again = again.with("args", json!({"cni": {"ips": ["10.233.0.6"]}}));
    assert!(again.add().code != 0, "another pod has it");
    again.del().ok();
    for call in calls.into_iter().chain([each, call]) {
        call.del().ok();
    }
    for pool in ["10.233.0.0-29", "fd33---125", "other-10.233.0.4-31"] {
        assert_eq!(node.entries(pool), [], "{pool}");
    }
}

/// Returns calls of type `braid` for pods on this node that request a network with these keys of
/// `ipam`.
fn requesting<const N: usize>(node: &Node, names: [&str; N], range: &Value) -> [(Rc<Ns>, Call); N] {
    node.become_admin();
    let mut ipam = range.clone();
    ipam["type"] = "whereabouts".into();
    ipam["kubernetes"] = json!({"kubeconfig": node.kubeconfig});
    let lan = json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "lan1", "ipam": ipam});
    node.world
        .create_nad("lan", &json!({"config": lan.to_string()}));
    let default =
        json!({"cniVersion": "1.0.0", "name": "default", "plugins": [{"type": "bridge"}]});
    std::fs::create_dir_all("/etc/cni").expect("a folder");
    std::fs::write("/etc/cni/default.conflist", default.to_string()).expect("written");
    let conf = json!({
        "cniVersion": "1.1.0",
        "name": "pods",
        "type": "braid",
        "kubeconfig": node.kubeconfig,
        "clusterNetwork": "/etc/cni/default.conflist",
    });
    names.map(|name| {
        let networks = json!({"k8s.v1.cni.cncf.io/networks": "lan"});
        let container = json!({"name": "c", "image": "none"});
        node.world.create(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": networks},
            "spec": {"nodeName": node.world.namespace, "containers": [container]},
        }));
        let ns = node.world.sandbox.pod(name);
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={name}",
            node.world.namespace
        );
        let call = node.world.sandbox.call("braid", &ns, conf.clone());
        (ns, call.args(&args))
    })
}

#[test]
fn a_del_without_record_and_network_leaves_the_address_to_the_journal() {
    let Some(node) = Node::new("whereabouts-lost") else {
        return;
    };
    let range = json!({"range": "10.214.0.0/29"});
    let [(_ns, call)] = requesting(&node, ["web"], &range);
    call.add().result();
    assert_eq!(node.entries("10.214.0.0-29").len(), 1);
    // As after a power cut: the records are in memory, and the agent has not written its files yet.
    std::fs::remove_dir_all("/run/braid").expect("records");
    let kubeconfig = std::fs::read(&node.kubeconfig).expect("a kubeconfig");
    std::fs::remove_file(&node.kubeconfig).expect("removed");
    let answer = call.del();
    answer.ok();
    let said = &answer.stderr;
    assert!(said.contains("its networks are not known"), "{said}");
    std::fs::write(&node.kubeconfig, kubeconfig).expect("written");
    let (_next, next) = node.pod("next", &range);
    next.add().result();
    next.del().ok();
    assert_eq!(node.entries("10.214.0.0-29"), []);
}

#[test]
fn gc_keeps_the_address_of_a_listed_container_with_a_damaged_record() {
    let Some(node) = Node::new("whereabouts-gc") else {
        return;
    };
    let range = json!({"range": "10.215.0.0/29"});
    let [(_a, first), (_b, second)] = requesting(&node, ["first", "second"], &range);
    first.add().result();
    second.add().result();
    let record = "/run/braid/attachments/first/eth0:pods:braid.json";
    assert!(Path::new(record).exists());
    std::fs::write(record, "{").expect("damaged");
    let listed = [("first", "eth0"), ("second", "eth0")];
    first.gc(&listed).ok();
    assert_eq!(node.entries("10.215.0.0-29").len(), 2);
    first.gc(&listed[1..]).ok();
    for call in [first, second] {
        call.del().ok();
    }
    assert_eq!(node.entries("10.215.0.0-29"), []);
}

/// Starts an agent with the node's account, which may do everything.
fn agent(node: &Node) -> Agent {
    let name = &node.world.namespace;
    node.become_admin();
    let config = format!("{name}/braid");
    let more = ["--config-map", &config];
    Agent::start(Path::new(&node.kubeconfig), name, &more)
}

/// Returns the metrics of a pool: used, held, foreign and free addresses.
fn metrics_of(pool: &str) -> [Option<f64>; 4] {
    let text = scrape();
    ["used", "held", "foreign", "free"].map(|count| {
        let sample = format!("braid_pool_addresses_{count}{{pool=\"{pool}\"}}");
        value(&text, &sample)
    })
}

#[test]
fn with_an_agent_calls_send_no_requests_and_sigterm_gives_back_what_is_held() {
    let Some(node) = Node::new("whereabouts-agent") else {
        return;
    };
    let name = &node.world.namespace;
    let agent = agent(&node);
    let ipam = json!({"range": "10.207.0.0/28"});
    let (_first, first) = node.pod("first", &ipam);
    first.add().result();
    let pool = "10.207.0.0-28";
    let held = format!("braid:{name}");
    let ids = || -> Vec<String> {
        let entries = node.entries(pool).into_iter();
        entries.map(|(_, id)| id).collect()
    };
    await_true("a held address", || ids().contains(&held));
    let reservation = || node.get("overlappingrangeipreservations", "10.207.0.2");
    assert_eq!(
        reservation().expect("made first")["spec"]["containerid"],
        held
    );
    // A call cannot reach the API server. The agent has its connection.
    let kubeconfig = std::fs::read(&node.kubeconfig).expect("a kubeconfig");
    std::fs::remove_file(&node.kubeconfig).expect("removed");
    let (_second, second) = node.pod("second", &ipam);
    assert_eq!(addresses(&second.add().result()), ["10.207.0.2/28"]);
    let of_containers = || ids().iter().filter(|id| **id != held).count();
    await_true("the entries of both containers", || of_containers() == 2);
    await_true("another held address", || ids().contains(&held));
    let two_used = [2.0, 1.0, 0.0, 11.0].map(Some);
    await_true("both in the metrics", || metrics_of(pool) == two_used);
    first.del().ok();
    await_true("the release", || of_containers() == 1);
    std::fs::write(&node.kubeconfig, kubeconfig).expect("written");
    agent.stop();
    assert_eq!(ids().len(), 1, "only that of the second pod: {:?}", ids());
    second.del().ok();
    assert_eq!(node.entries(pool), []);
    for address in 1..15 {
        let reservation = format!("10.207.0.{address}");
        assert_eq!(
            node.get("overlappingrangeipreservations", &reservation),
            None
        );
    }
}

#[test]
fn a_pool_that_runs_short_is_one_event_on_its_network_and_a_pool_without_pods_no_series() {
    let Some(node) = Node::new("whereabouts-short") else {
        return;
    };
    let agent = agent(&node);
    let ipam = json!({"range": "10.208.0.0/28"});
    let conf = json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {
        "type": "whereabouts",
        "range": "10.208.0.0/28",
    }});
    let namespace = &node.world.namespace;
    node.world
        .create_nad("lan", &json!({"config": conf.to_string()}));
    let copy = format!("/var/lib/braid/networks/{namespace}_lan.json");
    await_true("the copy of the network", || Path::new(&copy).exists());
    let events = || {
        let kind = "events.v1.events.k8s.io";
        let selector = "--field-selector=reason=AddressesRunOut,regarding.name=lan";
        let list = ["get", kind, "-o", "name", "-n", namespace, selector];
        let names = node.world.server.kubectl(&list, None);
        names.lines().count()
    };
    // 90 % of 14 addresses.
    let attached: Vec<_> = (0..13)
        .map(|number| {
            let (ns, call) = node.pod(&format!("web-{number}"), &ipam);
            call.add().result();
            (ns, call)
        })
        .collect();
    await_true("an event", || events() == 1);
    let pool = "10.208.0.0-28";
    let all = [13.0, 0.0, 0.0, 1.0].map(Some);
    await_true("all in the metrics", || metrics_of(pool) == all);
    for (_ns, call) in &attached {
        call.del().ok();
    }
    await_true("no series", || metrics_of(pool) == [None; 4]);
    assert_eq!(events(), 1);
    agent.stop();
    assert_eq!(node.entries(pool), []);
}

#[test]
fn a_range_of_host_local_on_a_shared_link_is_an_event_on_its_network() {
    // Of all nodes on the API server, the first one by name reports.
    let Some(node) = Node::new("a-range-on-every-node") else {
        return;
    };
    let second =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a-range-second"}});
    let server = node.world.server;
    server.kubectl(&["create", "-f", "-"], Some(&second));
    let agent = agent(&node);
    let conf = |kind: &str| {
        let ipam = json!({"type": "host-local", "subnet": "10.210.9.0/24"});
        let conf = json!({"cniVersion": "1.0.0", "type": kind, "master": "eth1", "ipam": ipam});
        json!({"config": conf.to_string()})
    };
    node.world.create_nad("own", &conf("bridge"));
    node.world.create_nad("lan", &conf("macvlan"));
    let events = || {
        let kind = "events.v1.events.k8s.io";
        let selector = "--field-selector=reason=RangeOnEveryNode";
        let field = "jsonpath={range .items[*]}{.regarding.name} {.note}{'\\n'}{end}";
        let list = [
            "get",
            kind,
            "-n",
            &node.world.namespace,
            selector,
            "-o",
            field,
        ];
        server.kubectl(&list, None)
    };
    await_true("an event", || !events().is_empty());
    let text = events();
    assert!(
        text.starts_with("lan each node gives out 10.210.9.1-10.210.9.254"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    agent.stop();
}
