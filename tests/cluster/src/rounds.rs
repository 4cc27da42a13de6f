//! Pods that prove the network of each state of a cluster that moves from one program to another.
//! Each node has a pod of this state and one of the state before, so each program deletes pods that
//! the other attached.

use crate::flows::{End, Stream};
use crate::leftovers::{self, Traces};
use crate::networks_check::attached;
use crate::pods::{self, EVEN, ODD};
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use braid_testbed::{API_SERVER, Cluster, Node, wait};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Longest time until the runtimes have cleaned up.
const LIMIT: Duration = Duration::from_mins(2);
/// Longest time until an answer on a connection that lasts. A packet that is lost takes 0.2 s more,
/// and the next try 0.4 s more.
const LONGEST: Duration = Duration::from_secs(1);

/// A pod with an answer for each request: its name.
struct Server {
    name: String,
    node: String,
    addresses: Vec<String>,
}

impl Server {
    /// Returns the server with its addresses in all networks.
    fn of(pod: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut addresses = Vec::new();
        for entry in list(&pod["status"]["podIPs"]) {
            addresses.push(text(&entry["ip"]));
        }
        for entry in pods::network_status(pod).iter().skip(1) {
            addresses.extend(list(&entry["ips"]).iter().map(text));
        }
        Self {
            name: text(&pod["metadata"]["name"]),
            node: text(&pod["spec"]["nodeName"]),
            addresses,
        }
    }
}

/// Expected state of a cluster.
pub(crate) struct Expected<'a> {
    /// Last event of the cluster.
    pub(crate) state: &'a str,
    /// Nodes whose new pods braid attaches.
    pub(crate) moved: &'a [Node],
    /// Returns true for files of deleted pods that may stay.
    pub(crate) except: fn(&Path) -> bool,
}

/// True for braid's records of pods that outlive it on their node.
pub(crate) fn is_record(path: &Path) -> bool {
    path.ancestors().any(|folder| folder.ends_with("run/braid"))
}

/// Pods and connections of a cluster that moves.
pub(crate) struct Rounds<'c> {
    cluster: &'c Cluster,
    nodes: Vec<Node>,
    ends: Vec<End>,
    /// Sandboxes, restarts and addresses of the ends.
    before: Vec<String>,
    streams: Vec<(String, Stream)>,
    number: usize,
    /// Returns the network of a node that the pods of states request, if any.
    network: fn(Node) -> Option<String>,
}

impl<'c> Rounds<'c> {
    /// Creates the ends of connections, one on each node, and connects each with the next.
    pub(crate) fn start(
        cluster: &'c Cluster,
        app: &'static str,
        network: fn(Node) -> Option<String>,
    ) -> Result<Self> {
        let nodes = cluster.nodes()?;
        for app in [app, EVEN, ODD] {
            pods::delete(cluster, "pod", app)?; // of an earlier run that failed
        }
        let ends: Vec<End> = nodes.iter().map(|node| End { app, node: *node }).collect();
        let pods: Vec<Value> = ends.iter().map(|end| end.pod()).collect();
        cluster.create(&pods)?;
        pods::await_ready(cluster, app)?;
        let mut streams = Vec::new();
        for (at, client) in ends.iter().enumerate() {
            let server = ends[(at + 1) % ends.len()];
            let name = format!("{} to {}", client.node, server.node);
            streams.push((name, Stream::start(cluster, *client, server)?));
        }
        let mut rounds = Self {
            cluster,
            nodes,
            ends,
            before: Vec::new(),
            streams,
            number: 0,
            network,
        };
        rounds.before = rounds.ends()?;
        Ok(rounds)
    }

    /// Checks the cluster in a state in which `moved` attach pods by braid, like [`Self::check_all`].
    pub(crate) fn check(&mut self, state: &str, moved: &[Node]) -> Result<()> {
        self.check_all(&Expected {
            state,
            moved,
            except: |_| false,
        })
    }

    /// Checks the cluster in a state: new pods reach all others, connections go on, and nothing is
    /// left of the pods of the state before.
    pub(crate) fn check_all(&mut self, expected: &Expected<'_>) -> Result<()> {
        let state = expected.state;
        let slowest = self
            .replace(expected)
            .and_then(|()| self.slowest())
            .with_context(|| state.to_owned())?;
        let count = self.nodes.len();
        println!("{state}: {count} new pods reach all others; slowest answers {slowest}");
        Ok(())
    }

    fn replace(&mut self, expected: &Expected<'_>) -> Result<()> {
        let (old, new) = match self.number % 2 {
            0 => (ODD, EVEN),
            _ => (EVEN, ODD),
        };
        self.number += 1;
        let mut pods = Vec::new();
        for node in &self.nodes {
            pods.push(server(new, *node, (self.network)(*node)));
        }
        self.cluster.create(&pods)?;
        pods::await_ready(self.cluster, new)?;
        self.reach_all(old, new)?;
        for node in &self.nodes {
            let is_expected = expected.moved.contains(node);
            ensure_by_braid(self.cluster, *node, new, is_expected)?;
        }
        let ends = self.ends()?;
        ensure!(
            ends == self.before,
            "running pods have changed: {ends:?}, before {:?}",
            self.before
        );
        let mut traces = Vec::new();
        for node in &self.nodes {
            traces.push((*node, Traces::of(self.cluster, *node, old)?));
        }
        pods::delete(self.cluster, "pod", old)?;
        // The end of a connection, and the pod of this state.
        let living = 2;
        wait::eventually(LIMIT, || {
            traces.iter().try_for_each(|(node, traces)| {
                let others = (traces, living);
                leftovers::ensure_none_beside(self.cluster, *node, others, expected.except)
            })
        })
    }

    /// Fails unless each new pod reaches all pods, and no address has two owners.
    fn reach_all(&self, old: &str, new: &str) -> Result<()> {
        let mut servers = Vec::new();
        for app in [new, old] {
            servers.extend(pods::list(self.cluster, app)?.iter().map(Server::of));
        }
        let mut taken = BTreeSet::new();
        for address in servers.iter().flat_map(|server| &server.addresses) {
            ensure!(taken.insert(address), "{address} has two owners");
        }
        for prober in servers.iter().take(self.nodes.len()) {
            check_from(self.cluster, prober, &servers)?;
        }
        Ok(())
    }

    /// Returns the slowest answer of each connection since the last call. Fails if one took too
    /// long.
    fn slowest(&mut self) -> Result<String> {
        let mut all = Vec::new();
        for (name, stream) in &mut self.streams {
            let slowest = stream.slowest().with_context(|| name.clone())?;
            ensure!(
                slowest <= LONGEST,
                "{name}: an answer took {slowest:?}, more than {LONGEST:?}"
            );
            all.push(format!("{name} {:.0} ms", slowest.as_secs_f64() * 1000.0));
        }
        Ok(all.join(", "))
    }

    /// Deletes the pods of a node but the end of a connection. Returns their identifiers.
    pub(crate) fn drain(&self, node: Node) -> Result<Vec<Traces>> {
        let mut traces = Vec::new();
        for app in [EVEN, ODD] {
            traces.push(Traces::of(self.cluster, node, app)?);
            let delete = ["delete", "pod", "--ignore-not-found", &name(app, node)];
            sh::read(&mut self.cluster.kubectl(delete))?;
        }
        Ok(traces)
    }

    /// Waits until nothing is left of the pods of a drained node.
    pub(crate) fn await_none(&self, node: Node, drained: &[Traces]) -> Result<()> {
        let living = 1; // the end of a connection
        wait::eventually(LIMIT, || {
            drained.iter().try_for_each(|traces| {
                let others = (traces, living);
                leftovers::ensure_none_beside(self.cluster, node, others, |_| false)
            })
        })
    }

    /// Deletes all pods but the ends of connections.
    pub(crate) fn clear(&self) -> Result<()> {
        for app in [EVEN, ODD] {
            pods::delete(self.cluster, "pod", app)?;
        }
        Ok(())
    }

    /// Ends the connections and deletes their ends.
    pub(crate) fn end(self) -> Result<()> {
        self.clear()?;
        drop(self.streams);
        let app = self.ends.first().context("no ends")?.app;
        pods::delete(self.cluster, "pod", app)
    }

    /// Returns a line with sandbox, restarts and addresses for each end.
    fn ends(&self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for end in &self.ends {
            let fields =
                "{.metadata.uid} {.status.podIPs[*].ip} {.status.containerStatuses[*].containerID}";
            let get = ["get", "pod", &end.name(), &format!("-o=jsonpath={fields}")];
            let status = sh::read(&mut self.cluster.kubectl(get))?;
            let sandbox = attached::sandbox(self.cluster, end.node, &end.name())?;
            lines.push(format!("{} {status} {sandbox}", end.name()));
        }
        Ok(lines)
    }
}

/// Fails unless braid attached the pods of `app` on a node, or did not, as `is_expected` says.
fn ensure_by_braid(cluster: &Cluster, node: Node, app: &str, is_expected: bool) -> Result<()> {
    let records = cluster.root(node)?.join("run/braid/attachments");
    let pod = name(app, node);
    let sandbox = attached::sandbox(cluster, node, &pod)?;
    let is_by_braid = records.join(sandbox).is_dir();
    ensure!(
        is_by_braid == is_expected,
        "{pod} is attached by {}",
        if is_by_braid {
            "braid"
        } else {
            "another plugin"
        }
    );
    Ok(())
}

fn name(app: &str, node: Node) -> String {
    format!("{app}-{node}")
}

fn server(app: &str, node: Node, network: Option<String>) -> Value {
    let script = "hostname > /tmp/index.html; exec httpd -f -p '[::]:80' -h /tmp";
    let mut spec = pods::spec(script);
    spec["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1});
    let mut pod = pods::on(&name(app, node), app, node, spec);
    if let Some(network) = network {
        pod["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/networks": network});
    }
    pod
}

/// Fails unless `prober` reaches the API server's machine, and all servers by each of their addresses
/// of a family that it has itself.
fn check_from(cluster: &Cluster, prober: &Server, servers: &[Server]) -> Result<()> {
    let has = |ipv6: bool| prober.addresses.iter().any(|own| own.contains(':') == ipv6);
    let mut expected = vec!["outside".to_owned()];
    let mut script = format!("ping -c 1 -W 5 {API_SERVER} >/dev/null && echo outside\n");
    for server in servers {
        for address in &server.addresses {
            let ipv6 = address.contains(':');
            if has(ipv6) {
                let host = if ipv6 {
                    format!("[{address}]")
                } else {
                    address.clone()
                };
                // `timeout`, because `wget -T` crashes in Debian 12's static busybox.
                writeln!(
                    script,
                    "echo {host} $(timeout 5 wget -qO- http://{host}/ 2>&1)"
                )?;
                expected.push(format!("{host} {}", server.name));
            }
        }
    }
    let exec = ["exec", &prober.name, "--", "/bin/sh", "-c", &script];
    let answers = sh::read(&mut cluster.kubectl(exec))?;
    let answers: Vec<&str> = answers.lines().collect();
    if answers != expected {
        bail!(
            "from {} on {}: {answers:?} instead of {expected:?}",
            prober.name,
            prober.node
        );
    }
    Ok(())
}
