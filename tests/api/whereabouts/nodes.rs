//! Ten nodes with one API server: each with its own `/run/braid` and `/var/lib/braid`, and calls at
//! the same time.

use super::{NAMESPACE, Node, addresses, json, reservations};
use crate::proxy::Fault;
use braid_tests::{Value, binary};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

const NODES: usize = 10;
/// Calls at the same time.
const AT_ONCE: usize = 8;
/// Pods of each node if `BRAID_IPAM_PODS` is unset.
const PODS: usize = 4;
/// braid under the name of an IPAM plugin, as an interface plugin of another project starts it.
const PLUGINS: &str = "/run/plugin";
/// Prepares a node, says so, and keeps its mounts until standard input ends.
const PREPARE: &str = "mount --make-rprivate / && mkdir -p /var/lib/braid /run/braid && \
    mount -t tmpfs tmpfs /var/lib/braid && mount -t tmpfs tmpfs /run/braid && echo ready && cat";
/// First port of the agents.
const PORTS: usize = 4700;

/// A process with a node's mounts.
pub(super) struct Mounts {
    pub(super) name: String,
    /// Kubernetes namespace of its pod.
    namespace: String,
    child: Child,
}

impl Mounts {
    fn new(name: String, namespace: &str) -> Self {
        let mut child = Command::new("unshare")
            .args(["--mount", "sh", "-c", PREPARE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare(1)");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self {
            name,
            namespace: namespace.to_owned(),
            child,
        }
    }

    /// Returns a command in the node's mounts.
    fn command(&self, program: &str) -> Command {
        let pid = self.child.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &pid, program]);
        command
    }

    /// Runs a call of the configuration's IPAM for a container, and returns its result.
    pub(super) fn call(&self, verb: &str, container: &str, conf: &Value) -> Result<Value, String> {
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={}-pod",
            self.namespace, self.name
        );
        let plugin = conf["ipam"]["type"].as_str().expect("a type");
        let mut call = self
            .command(&format!("{PLUGINS}/{plugin}"))
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", "/proc/self/ns/net")
            .env("CNI_IFNAME", "net1")
            .env("CNI_PATH", PLUGINS)
            .env("CNI_ARGS", args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("nsenter(1)");
        let mut stdin = call.stdin.take().expect("a pipe");
        stdin
            .write_all(conf.to_string().as_bytes())
            .expect("written");
        drop(stdin);
        let output = call.wait_with_output().expect("an end");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            return Err(text);
        }
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Ten nodes with the same number of pods each.
pub(super) struct Crowd {
    pub(super) node: Node,
    mounts: Vec<Mounts>,
    pods: usize,
}

impl Crowd {
    /// Creates the nodes, with this fault on their connections to the API server. `None` without an
    /// API server.
    pub(super) fn new(test: &str, fault: Fault) -> Option<Self> {
        let node = Node::with(test, fault)?;
        let pods = std::env::var("BRAID_IPAM_PODS");
        let pods = pods.map_or(PODS, |pods| pods.parse().expect("a number"));
        let names: Vec<String> = (0..NODES).map(|at| format!("{test}-{at}")).collect();
        create(&node, &names);
        fs::create_dir_all(PLUGINS).expect("a folder");
        for name in ["whereabouts", "host-local"] {
            symlink(binary::braid(), format!("{PLUGINS}/{name}")).expect("a link to braid");
        }
        let namespace = &node.world.namespace;
        let mounts = names.into_iter().map(|name| Mounts::new(name, namespace));
        Some(Self {
            mounts: mounts.collect(),
            node,
            pods,
        })
    }

    /// Number of pods of all nodes.
    pub(super) fn number(&self) -> usize {
        NODES * self.pods
    }

    /// Returns the configuration of a foreign plugin with these keys of its IPAM `whereabouts`.
    pub(super) fn conf(&self, keys: &Value) -> Value {
        let mut ipam = keys.clone();
        ipam["type"] = "whereabouts".into();
        ipam["kubernetes"] = json!({"kubeconfig": self.node.kubeconfig});
        json!({"cniVersion": "1.0.0", "name": "lan", "type": "sriov", "ipam": ipam})
    }

    /// Returns the configuration of a range of 10.`net`.0.0/22 with as many addresses as pods.
    pub(super) fn exact(&self, net: u8) -> Value {
        let last = self.number();
        let end = format!("10.{net}.{}.{}", last / 256, last % 256);
        self.conf(&json!({"range": format!("10.{net}.0.0/22"), "range_end": end}))
    }

    /// Starts an agent on each node, which may do everything.
    pub(super) fn agents(&self) -> Vec<Process> {
        self.node.become_admin();
        let start = |(at, mounts): (usize, &Mounts)| {
            let port = |of: usize| format!("127.0.0.1:{}", PORTS + 2 * at + of);
            let config = format!("{}/braid", self.node.world.namespace);
            let agent = mounts
                .command(&binary::braid().to_string_lossy())
                .args(["agent", "--kubeconfig", &self.node.kubeconfig])
                .args(["--node-name", &mounts.name, "--config-map", &config])
                .args(["--health-address", &port(0), "--metrics-address", &port(1)])
                .spawn();
            Process(agent.expect("an agent"))
        };
        self.mounts.iter().enumerate().map(start).collect()
    }

    /// Runs `work` for all pods of all nodes, [`AT_ONCE`] at the same time. Neighbouring calls are of
    /// different nodes.
    pub(super) fn each<R: Send>(&self, work: impl Fn(&Mounts, usize) -> R + Sync) -> Vec<R> {
        let (mounts, all) = (&self.mounts, self.number());
        let (next, done) = (Mutex::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    loop {
                        let number = {
                            let mut next = next.lock().expect("a number");
                            *next += 1;
                            *next - 1
                        };
                        if number >= all {
                            return;
                        }
                        let result = work(&mounts[number % NODES], number / NODES);
                        done.lock().expect("results").push(result);
                    }
                });
            }
        });
        done.into_inner().expect("results")
    }

    /// Counts the requests of all nodes so far, by right and status.
    pub(super) fn requests(&self) -> BTreeMap<String, usize> {
        let world = &self.node.world;
        let account = format!("{NAMESPACE}:{}", world.namespace);
        let audit = world.server.audit_of(&account);
        let mut counts = BTreeMap::new();
        for request in audit.requests() {
            let verb = request["verb"].as_str().unwrap_or_default();
            let resource = request["objectRef"]["resource"]
                .as_str()
                .unwrap_or_default();
            let key = format!("{verb} {resource} {}", request["responseStatus"]["code"]);
            *counts.entry(key).or_default() += 1;
        }
        counts
    }

    /// Returns the containers that the entries of a pool name.
    pub(super) fn containers(&self, pool: &str) -> BTreeSet<String> {
        let entries = self.node.entries(pool).into_iter();
        entries.map(|(_, id)| id).collect()
    }
}

/// A process that ends with SIGTERM when dropped.
pub(super) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").arg(pid).status();
        let _ = self.0.wait();
    }
}

fn create(node: &Node, names: &[String]) {
    let mut all = Vec::new();
    for name in names {
        all.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        all.push(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": format!("{name}-pod"), "namespace": node.world.namespace},
            "spec": {"nodeName": name, "containers": [{"name": "c", "image": "none"}]},
        }));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": all});
    node.world
        .server
        .kubectl(&["create", "-f", "-"], Some(&list));
}

#[test]
fn ten_nodes_use_each_address_of_a_range_once_and_give_all_back() {
    let Some(crowd) = Crowd::new("whereabouts-nodes", Fault::None) else {
        return;
    };
    let (last, conf) = (crowd.number(), crowd.exact(236));
    let id = |mounts: &Mounts, pod: usize| format!("{}-{pod}", mounts.name);
    let start = Instant::now();
    let added = crowd.each(|mounts, pod| mounts.call("ADD", &id(mounts, pod), &conf));
    eprintln!(
        "{last} ADDs on {NODES} nodes took {:?}: {:?}",
        start.elapsed(),
        crowd.requests()
    );
    let mut unique = BTreeSet::new();
    for result in &added {
        let result = result.as_ref().unwrap_or_else(|err| panic!("{err}"));
        for address in addresses(result) {
            assert!(unique.insert(address.to_owned()), "{address} twice");
        }
    }
    assert_eq!(unique.len(), last);
    let first = &crowd.mounts[0];
    let refused = first.call("ADD", "one-more", &conf);
    let refused = refused.expect_err("all addresses are in use");
    assert!(refused.contains("IPPool 10.236.0.0-22"), "{refused}");
    first.call("DEL", "one-more", &conf).expect("a DEL");
    let expected = crowd.each(id);
    assert_eq!(
        crowd.containers("10.236.0.0-22"),
        expected.into_iter().collect()
    );
    let start = Instant::now();
    for deleted in crowd.each(|mounts, pod| mounts.call("DEL", &id(mounts, pod), &conf)) {
        deleted.expect("a DEL");
    }
    eprintln!(
        "{last} DELs took {:?}: {:?}",
        start.elapsed(),
        crowd.requests()
    );
    assert_eq!(crowd.node.entries("10.236.0.0-22"), []);
    let left = reservations(crowd.node.world.server);
    assert!(!left.contains("/10.236."), "{left}");
}
