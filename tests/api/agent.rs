//! `braid agent` on a real API server: the conflist and the routes of a node, judged by `ip` and by
//! traffic between two nodes' pods.
//!
//! ```text
//!  sandbox: node a, 192.0.2.1 ── veth ── namespace "other", 192.0.2.2: the other node
//!  the API server has a Node object for each
//! ```

mod boot;
mod capabilities;
mod claims;
mod distributions;
mod duplicates;
mod edit;
mod fabric;
mod firewall;
mod flannel;
mod garbage;
pub(crate) mod metrics;
mod node;
mod pings;
mod removal;
mod repair;
mod repair_pods;
mod reports;
mod sizes;
mod slices;
mod socket;
mod stale;
mod status;

use crate::proxy::Fault;
use crate::{World, json};
use braid_tests::{Call, Ns, Value};
use ipnet::IpNet;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::rc::Rc;
use std::time::{Duration, Instant};

const CONFLIST: &str = "/etc/cni/net.d/00-braid.conflist";
/// `rtm_protocol` of the agent's routes.
const PROTOCOL: &str = "98";
/// Address of `/readyz`.
const HEALTH: &str = "127.0.0.1:4627";
/// Longest time until the node is as the objects say.
const PATIENCE: Duration = Duration::from_mins(1);

/// Rights to the `ConfigMap` of the agent.
const CONFIG_RIGHTS: [&str; 3] = [
    "--verb=list,watch",
    "--resource=configmaps",
    "--resource-name=braid",
];
/// Rights to events.
const EVENT_RIGHTS: [&str; 2] = ["--verb=create,patch", "--resource=events.events.k8s.io"];

/// A node with an agent, and another node on the same link.
struct Pair {
    world: World,
    other: Rc<Ns>,
    names: [String; 2],
    created: RefCell<BTreeSet<String>>,
}

impl Pair {
    /// Creates two nodes with these last bytes of 10.`net`.x.0/24 as pod ranges, without an agent.
    fn new(test: &str, net: u8) -> Option<Self> {
        Some(Self::of_net(World::new(test)?, net))
    }

    /// Like [`Pair::new`], with an API server that begins with these faults.
    fn with_faults(test: &str, net: u8, faults: Vec<Fault>) -> Option<Self> {
        Some(Self::of_net(World::with(test, faults, Fault::None)?, net))
    }

    fn of_net(world: World, net: u8) -> Self {
        let other = world
            .sandbox
            .outside("other", "192.0.2.1/24", "192.0.2.2/24");
        let ranges = [1, 2].map(|node| format!("10.{net}.{node}.0/24"));
        let nodes: [(&[&str], &[&str]); 2] = [
            (&[&ranges[0]], &["192.0.2.1"]),
            (&[&ranges[1]], &["192.0.2.2"]),
        ];
        Self::in_world(world, other, nodes)
    }

    /// Creates two nodes with these ranges and addresses, of which `other` is the second.
    fn in_world(world: World, other: Rc<Ns>, nodes: [(&[&str], &[&str]); 2]) -> Self {
        fs::create_dir_all("/etc/cni/net.d").expect("a folder for the conflist");
        let names = ["a", "b"].map(|name| format!("{}-{name}", world.namespace));
        let pair = Self {
            world,
            other,
            names,
            created: RefCell::default(),
        };
        for (name, (ranges, addresses)) in pair.names.iter().zip(nodes) {
            pair.create_node_of(name, ranges, addresses);
        }
        pair.allow();
        pair
    }

    fn create_node(&self, name: &str, range: &str, address: &str) {
        self.create_node_of(name, &[range], &[address]);
    }

    fn create_node_of(&self, name: &str, ranges: &[&str], addresses: &[&str]) {
        self.created.borrow_mut().insert(name.to_owned());
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {"podCIDR": ranges[0], "podCIDRs": ranges},
        });
        let server = self.world.server;
        server.kubectl(&["create", "-f", "-"], Some(&node));
        let address = |address| json!({"type": "InternalIP", "address": address});
        let addresses: Vec<Value> = addresses.iter().map(address).collect();
        let patch = json!({"status": {"addresses": addresses}});
        let patch = format!("--patch={patch}");
        server.kubectl(
            &["patch", "node", name, "--subresource=status", &patch],
            None,
        );
    }

    fn delete_node(&self, name: &str) {
        self.world.server.kubectl(&["delete", "node", name], None);
    }

    /// Gives the test's own service account the rights of an agent.
    fn allow(&self) {
        let namespace = &self.world.namespace;
        let server = self.world.server;
        server.kubectl(
            &["create", "serviceaccount", "agent", "-n", namespace],
            None,
        );
        let role = [
            "--verb=list,watch",
            "--resource=nodes,servicecidrs.networking.k8s.io",
        ];
        server.kubectl(
            &[&["create", "clusterrole", namespace], &role[..]].concat(),
            None,
        );
        let own = [
            "--verb=create",
            "--resource=serviceaccounts/token",
            "--resource-name=agent",
        ];
        let role = [&["create", "role", "agent", "-n", namespace], &own[..]].concat();
        server.kubectl(&role, None);
        let subject = format!("--serviceaccount={namespace}:agent");
        let binding = [
            "create",
            "rolebinding",
            "agent",
            "-n",
            namespace,
            "--role=agent",
            &subject,
        ];
        server.kubectl(&binding, None);
        self.grant("config", namespace, &CONFIG_RIGHTS);
        self.grant(&format!("{namespace}-events"), "default", &EVENT_RIGHTS);
        let role = format!("--clusterrole={namespace}");
        server.kubectl(
            &["create", "clusterrolebinding", namespace, &role, &subject],
            None,
        );
    }

    /// Gives the test's service account a role in a namespace.
    fn grant(&self, role: &str, namespace: &str, rights: &[&str]) {
        let server = self.world.server;
        let create = ["create", "role", role, "-n", namespace];
        server.kubectl(&[&create, rights].concat(), None);
        let subject = format!("--serviceaccount={}:agent", self.world.namespace);
        let bound = format!("--role={role}");
        let binding = [
            "create",
            "rolebinding",
            role,
            "-n",
            namespace,
            &bound,
            &subject,
        ];
        server.kubectl(&binding, None);
    }

    /// Starts an agent with direct routes.
    fn start(&self) -> Agent {
        self.start_in("direct")
    }

    fn start_in(&self, mode: &str) -> Agent {
        self.start_with(&["--config-map", &self.config_map(), "--mode", mode])
    }

    /// Starts an agent with the configuration of the test's `ConfigMap` alone.
    fn start_as_configured(&self) -> Agent {
        self.start_with(&["--config-map", &self.config_map()])
    }

    fn config_map(&self) -> String {
        format!("{}/braid", self.world.namespace)
    }

    /// Starts an agent with more arguments.
    fn start_with(&self, arguments: &[&str]) -> Agent {
        self.start_for("agent", arguments)
    }

    /// Starts the agent with this account for the tokens of calls.
    fn start_for(&self, account: &str, arguments: &[&str]) -> Agent {
        let account = format!("{}/{account}", self.world.namespace);
        let namespace = &self.world.namespace;
        let token = self
            .world
            .server
            .kubectl(&["create", "token", "agent", "-n", namespace], None);
        let kubeconfig = self.world.kubeconfig(&json!({"token": token.trim()}));
        let more = [&["--service-account", &account], arguments].concat();
        Agent::start(&kubeconfig, &self.names[0], &more)
    }

    /// Returns `destination via gateway` of the agent's routes.
    fn routes(&self) -> Vec<String> {
        let listed = self
            .world
            .sandbox
            .list(&format!("ip -j route show proto {PROTOCOL}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut routes: Vec<String> = listed
            .iter()
            .map(|route| format!("{} via {}", text(&route["dst"]), text(&route["gateway"])))
            .collect();
        routes.sort();
        routes
    }

    /// Waits until the agent's routes to these ranges are as expected. Nodes of other tests may add
    /// others.
    #[track_caller]
    fn await_routes(&self, prefix: &str, expected: &[&str]) {
        let own = || -> Vec<String> {
            let mut routes = self.routes();
            routes.retain(|route| route.starts_with(prefix));
            routes
        };
        await_true(&format!("routes {expected:?}"), || own() == expected);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in self.created.borrow().iter() {
            let _ = self
                .world
                .server
                .try_kubectl(&["delete", "node", name, "--ignore-not-found"], None);
        }
    }
}

/// A running agent, killed when dropped.
pub(crate) struct Agent {
    child: Child,
}

impl Agent {
    /// Starts the agent of a node.
    pub(crate) fn start(kubeconfig: &Path, node: &str, more: &[&str]) -> Self {
        let child = Command::new(braid_tests::binary::braid())
            .arg("agent")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--node-name", node])
            .args(more)
            .spawn()
            .expect("the agent starts");
        Self { child }
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the agent runs");
        self.child.wait().expect("the agent ends");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("kill(1)").success());
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        let start = Instant::now();
        let status = self.child.wait().expect("the agent ends");
        assert!(status.success(), "{status}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
pub(crate) fn await_true(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "no {what} after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns status line and body of a request to the agent.
fn ask(path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(HEALTH).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.lines().next()?.to_owned();
    Some((status, body.trim().to_owned()))
}

pub(crate) fn is_ready() -> bool {
    ask("/readyz").is_some_and(|(status, _)| status.contains(" 200 "))
}

#[test]
fn an_agent_makes_a_node_reach_the_pods_of_another() {
    let Some(pair) = Pair::new("agent-reach", 71) else {
        return;
    };
    // The other node has its pods already, and a route back, as its own agent would make it.
    for command in [
        "ip addr add 10.71.2.5/32 dev lo",
        "ip route add 10.71.1.0/24 via 192.0.2.1",
    ] {
        pair.other.run(command);
    }
    let agent = pair.start();
    pair.await_routes("10.71.", &["10.71.2.0/24 via 192.0.2.2"]);
    await_true("readiness", is_ready);
    let conf: Value = serde_json_of(CONFLIST);
    assert_eq!(conf["cniVersion"], "1.1.0");
    let pod = pair.world.sandbox.pod("p");
    let conf = json!({
        "cniVersion": "1.1.0",
        "name": conf["name"],
        "type": "braid",
        "plugins": conf["plugins"][0]["plugins"],
    });
    let outside = pair
        .world
        .sandbox
        .outside("world", "203.0.113.1/24", "203.0.113.2/24");
    let call = pair.world.sandbox.call("braid", &pod, conf);
    let result = call.add().result();
    let own: IpNet = result["ips"][0]["address"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("an address");
    let own = own.addr();
    // Other pods and nodes see the pod's address, others this node's.
    assert_eq!(pod.seen_by(&pair.other, "10.71.2.5"), own);
    assert_eq!(pod.seen_by(&pair.other, "192.0.2.2"), own);
    let seen = pod.seen_by(&outside, "203.0.113.2").to_string();
    assert_eq!(seen, "203.0.113.1");
    call.del().ok();
    agent.stop();
    // The end of the agent changes nothing. Nodes of other tests may add routes.
    pair.await_routes("10.71.", &["10.71.2.0/24 via 192.0.2.2"]);
}

#[test]
fn routes_follow_nodes_that_join_change_and_leave_also_while_the_agent_is_away() {
    let Some(pair) = Pair::new("agent-follow", 72) else {
        return;
    };
    let agent = pair.start();
    pair.await_routes("10.72.", &["10.72.2.0/24 via 192.0.2.2"]);
    pair.create_node("agent-follow-c", "10.72.3.0/24", "192.0.2.3");
    pair.await_routes(
        "10.72.",
        &["10.72.2.0/24 via 192.0.2.2", "10.72.3.0/24 via 192.0.2.3"],
    );
    agent.kill();
    pair.delete_node("agent-follow-c");
    let _agent = pair.start();
    pair.await_routes("10.72.", &["10.72.2.0/24 via 192.0.2.2"]);
}

#[test]
fn an_agent_without_its_node_is_not_ready_until_the_node_exists() {
    let Some(pair) = Pair::new("agent-wait", 73) else {
        return;
    };
    let name = pair.names[0].clone();
    pair.delete_node(&name);
    let _agent = pair.start();
    let reason = format!("there is no Node {name:?}");
    await_true("a reason", || {
        ask("/readyz").is_some_and(|(status, body)| status.contains(" 503 ") && body == reason)
    });
    assert!(ask("/healthz").is_some_and(|(status, _)| status.contains(" 200 ")));
    assert!(!fs::exists(CONFLIST).expect("the folder is readable"));
    pair.create_node(&name, "10.73.1.0/24", "192.0.2.1");
    await_true("readiness", is_ready);
    assert!(fs::exists(CONFLIST).expect("the folder is readable"));
}

#[test]
fn absurd_ranges_of_other_nodes_move_no_traffic_and_stop_nothing() {
    let Some(pair) = Pair::new("agent-absurd", 74) else {
        return;
    };
    // The range of a Node that another program routes already.
    let foreign = "ip route add 10.74.9.0/24 via 192.0.2.9 proto bird";
    pair.world.sandbox.run(foreign);
    // The network of another program's containers.
    for command in [
        "ip link add docker0 type bridge",
        "ip addr add 10.74.128.1/18 dev docker0",
        "ip link set docker0 up",
    ] {
        pair.world.sandbox.run(command);
    }
    // Nodes of one second are ordered by their random UIDs.
    std::thread::sleep(Duration::from_millis(1100));
    let others = [
        "0.0.0.0/0",
        "192.0.2.0/28",
        "10.74.1.128/25",
        "10.74.2.0/25",
        "10.74.9.0/24",
        "10.74.130.0/24",
    ];
    for (number, range) in others.iter().enumerate() {
        pair.create_node(&format!("agent-absurd-{number}"), range, "192.0.2.66");
    }
    let before = pair.world.sandbox.json("ip -j route show default");
    let _agent = pair.start();
    pair.await_routes("10.74.", &["10.74.2.0/24 via 192.0.2.2"]);
    await_true("readiness", is_ready);
    assert!(
        pair.routes()
            .iter()
            .all(|route| !route.contains("192.0.2.66"))
    );
    assert_eq!(pair.world.sandbox.json("ip -j route show default"), before);
    let bird = pair.world.sandbox.list("ip -j route show proto bird");
    assert_eq!(bird.len(), 1);
    assert_eq!(bird[0]["gateway"], "192.0.2.9");
}

#[test]
fn the_token_of_calls_is_bound_to_the_node_and_only_root_may_read_it() {
    let Some(pair) = Pair::new("agent-token", 75) else {
        return;
    };
    let _agent = pair.start();
    await_true("readiness", is_ready);
    let list = serde_json_of(CONFLIST);
    let kubeconfig = list["plugins"][0]["kubeconfig"].as_str().expect("a path");
    for path in [kubeconfig, "/run/braid/api/token", "/run/braid/api/ca.crt"] {
        let mode = fs::metadata(path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
    let token = fs::read_to_string("/run/braid/api/token").expect("a token");
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    });
    let reviewed = pair
        .world
        .server
        .kubectl(&["create", "-o", "json", "-f", "-"], Some(&review));
    let reviewed: Value = serde_json::from_str(&reviewed).expect("JSON");
    let user = &reviewed["status"]["user"];
    assert_eq!(user["username"], "system:serviceaccount:agent-token:agent");
    let node = &user["extra"]["authentication.kubernetes.io/node-name"];
    assert_eq!(*node, json!([pair.names[0]]));
}

/// Attaches a pod to the agent's network.
fn attach(pair: &Pair) -> (Rc<Ns>, Call) {
    let list = serde_json_of(CONFLIST);
    let pod = pair.world.sandbox.pod("p");
    let conf = json!({
        "cniVersion": "1.1.0",
        "name": list["name"],
        "type": "braid",
        "plugins": list["plugins"][0]["plugins"],
    });
    let call = pair.world.sandbox.call("braid", &pod, conf);
    call.add().result();
    (pod, call)
}

fn serde_json_of(path: &str) -> Value {
    let text = fs::read_to_string(path).expect("a file");
    serde_json::from_str(&text).expect("JSON")
}
