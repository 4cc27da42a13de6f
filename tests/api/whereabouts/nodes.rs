//! Ten nodes with one API server: each with its own `/run` and `/var/lib/braid`, and calls at the same
//! time.

use super::{NAMESPACE, Node, addresses, json, reservations};
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
/// braid under the name of the IPAM plugin, as an interface plugin of another project starts it.
const PLUGIN: &str = "/run/plugin/whereabouts";
/// Prepares a node, says so, and keeps its mounts until standard input ends.
const PREPARE: &str = "mount --make-rprivate / && mkdir -p /var/lib/braid && \
    mount -t tmpfs tmpfs /var/lib/braid && echo ready && cat";

/// A process with a node's mounts.
struct Mounts {
    name: String,
    child: Child,
}

impl Mounts {
    fn new(name: String) -> Self {
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
        Self { name, child }
    }

    /// Runs a call of the IPAM plugin, and returns its result.
    fn call(&self, verb: &str, pod: usize, namespace: &str, conf: &Value) -> Result<Value, String> {
        let pid = self.child.id().to_string();
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={}-pod",
            self.name
        );
        let mut call = Command::new("nsenter")
            .args(["--mount", "--target", &pid, PLUGIN])
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", format!("{}-{pod}", self.name))
            .env("CNI_NETNS", "/proc/self/ns/net")
            .env("CNI_IFNAME", "net1")
            .env("CNI_PATH", "/run/plugin")
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

/// Runs `work` for all pods of all nodes, [`AT_ONCE`] at the same time. Neighbouring calls are of
/// different nodes.
fn each<R: Send>(pods: usize, work: impl Fn(usize, usize) -> R + Sync) -> Vec<R> {
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
                    if number >= pods * NODES {
                        return;
                    }
                    let result = work(number % NODES, number / NODES);
                    done.lock().expect("results").push(result);
                }
            });
        }
    });
    done.into_inner().expect("results")
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

/// Counts the requests of all nodes so far, by right and status.
fn requests(node: &Node) -> BTreeMap<String, usize> {
    let account = format!("{NAMESPACE}:{}", node.world.namespace);
    let audit = node.world.server.audit_of(&account);
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

#[test]
fn ten_nodes_use_each_address_of_a_range_once_and_give_all_back() {
    let Some(node) = Node::new("whereabouts-nodes") else {
        return;
    };
    let pods = std::env::var("BRAID_IPAM_PODS");
    let pods: usize = pods.map_or(PODS, |pods| pods.parse().expect("a number"));
    let names: Vec<String> = (0..NODES)
        .map(|at| format!("whereabouts-nodes-{at}"))
        .collect();
    create(&node, &names);
    fs::create_dir_all("/run/plugin").expect("a folder");
    symlink(binary::braid(), PLUGIN).expect("a link to braid");
    let mounts: Vec<Mounts> = names.into_iter().map(Mounts::new).collect();
    // As many addresses as pods.
    let last = NODES * pods;
    let end = format!("10.236.{}.{}", last / 256, last % 256);
    let conf = json!({
        "cniVersion": "1.0.0",
        "name": "lan",
        "type": "sriov",
        "ipam": {
            "type": "whereabouts",
            "range": "10.236.0.0/22",
            "range_end": end,
            "kubernetes": {"kubeconfig": node.kubeconfig},
        },
    });
    let namespace = &node.world.namespace;
    let start = Instant::now();
    let added = each(pods, |at, pod| {
        mounts[at].call("ADD", pod, namespace, &conf)
    });
    eprintln!(
        "{last} ADDs on {NODES} nodes took {:?}: {:?}",
        start.elapsed(),
        requests(&node)
    );
    let mut unique = BTreeSet::new();
    for result in &added {
        let result = result.as_ref().unwrap_or_else(|err| panic!("{err}"));
        for address in addresses(result) {
            assert!(unique.insert(address.to_owned()), "{address} twice");
        }
    }
    assert_eq!(unique.len(), last);
    let refused = mounts[0].call("ADD", pods, namespace, &conf);
    let refused = refused.expect_err("all addresses are in use");
    assert!(refused.contains("IPPool 10.236.0.0-22"), "{refused}");
    mounts[0]
        .call("DEL", pods, namespace, &conf)
        .expect("a DEL");
    let ids: BTreeSet<String> = node
        .entries("10.236.0.0-22")
        .into_iter()
        .map(|it| it.1)
        .collect();
    let expected: Vec<String> = mounts
        .iter()
        .flat_map(|mounts| (0..pods).map(|pod| format!("{}-{pod}", mounts.name)))
        .collect();
    assert_eq!(ids, expected.into_iter().collect());
    let start = Instant::now();
    for deleted in each(pods, |at, pod| {
        mounts[at].call("DEL", pod, namespace, &conf)
    }) {
        deleted.expect("a DEL");
    }
    eprintln!(
        "{last} DELs took {:?}: {:?}",
        start.elapsed(),
        requests(&node)
    );
    assert_eq!(node.entries("10.236.0.0-22"), []);
    let left = reservations(node.world.server);
    assert!(!left.contains("/10.236."), "{left}");
}
