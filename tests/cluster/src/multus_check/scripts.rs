//! Multus' end-to-end scripts. Each creates networks and pods, and checks them.

use super::config::{self, DEFAULT_NAME, Form};
use super::{APP, LIMIT};
use crate::leftovers::{self, Traces};
use crate::networks_check::attached;
use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use serde_json::{Value, json};

const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
const MACVLAN: &str = "macvlan1-config";
const ROUTED: &str = "default-route-config";
/// Number of pods in `connection-limit`. Multus' own script creates six.
const MANY: u16 = 24;
/// Path of the sysctl that the script `subdirectory-chaining` changes.
const SETTING: &str = "/proc/sys/net/ipv4/conf/eth0/arp_filter";

/// Runs the scripts. `subdirectory-chaining` runs only with [`Form::Named`], because only that form
/// tells Multus the folder of the default network's file.
pub(super) fn run(cluster: &Cluster, nodes: [Node; 2], form: Form) -> Result<()> {
    let check = Check { cluster, nodes };
    check.simple_pod().context("simple-pod")?;
    check.simple_macvlan1().context("simple-macvlan1")?;
    check.default_route1().context("default-route1")?;
    check.connection_limit().context("connection-limit")?;
    if form == Form::Named {
        check
            .subdirectory_chaining()
            .context("subdirectory-chaining")?;
    }
    pods::delete(cluster, "net-attach-def", APP)
}

struct Check<'c> {
    cluster: &'c Cluster,
    nodes: [Node; 2],
}

impl Check<'_> {
    /// Checks one pod per node that has only the default network. The pod's status proves that the
    /// runtime uses Multus' configuration.
    fn simple_pod(&self) -> Result<()> {
        self.with_pods(
            "simple-pod",
            &self
                .nodes
                .map(|node| pod(&format!("simple-{node}"), node, &Value::Null)),
            || self.have_networks(&[]),
        )
    }

    /// Checks that pods on two nodes get the addresses that they request in a macvlan network with
    /// the capability `ips`, and reach each other.
    fn simple_macvlan1(&self) -> Result<()> {
        let macvlan = json!({"type": "macvlan", "capabilities": {"ips": true}, "master": "eth1", "mode": "bridge",
            "ipam": {"type": "static"}});
        self.cluster
            .create(&[network(MACVLAN, &json!([macvlan, {"type": "tuning"}]))])?;
        let names = ["macvlan1-worker1", "macvlan1-worker2"];
        let addresses = ["10.1.1.11", "10.1.1.12"];
        let request =
            |at: usize| json!([{"name": MACVLAN, "ips": [format!("{}/24", addresses[at])]}]);
        let pods = [0, 1].map(|at| pod(names[at], self.nodes[at], &request(at)));
        self.with_pods("simple-macvlan1", &pods, || {
            self.have_networks(&[MACVLAN])?;
            for at in [0, 1] {
                self.is_macvlan(self.nodes[at], names[at], addresses[at])?;
                self.exec(
                    names[at],
                    &["ping", "-c1", "-W5", "-I", "net1", addresses[1 - at]],
                )?;
            }
            Ok(())
        })
    }

    /// Checks the default routes of two pods in a network without the capability `ips`. One pod
    /// requests a default route in this network and has no other default route. The other pod keeps
    /// the route of its default network.
    fn default_route1(&self) -> Result<()> {
        let macvlan = json!({"type": "macvlan", "master": "eth1", "mode": "bridge", "ipam": {"type": "static"}});
        self.cluster.create(&[network(ROUTED, &json!([macvlan]))])?;
        let names = ["default-route-worker1", "default-route-worker2"];
        let addresses = ["10.1.1.21", "10.1.1.22"];
        let requests = [
            json!([{"name": ROUTED, "ips": ["10.1.1.21/24"], "default-route": ["10.1.1.254"]}]),
            json!([{"name": ROUTED, "ips": ["10.1.1.22/24"]}]),
        ];
        let pods = [0, 1].map(|at| pod(names[at], self.nodes[at], &requests[at]));
        self.with_pods("default-route1", &pods, || {
            self.have_networks(&[ROUTED])?;
            let gateway = json!(bridge_address(self.cluster, self.nodes[1])?);
            let expected = [(json!("10.1.1.254"), "net1"), (gateway, "eth0")];
            for at in [0, 1] {
                self.is_macvlan(self.nodes[at], names[at], addresses[at])?;
                let routes = self.ip(self.nodes[at], names[at], &["route", "show", "default"])?;
                let routes: Vec<_> = each(&routes)
                    .map(|route| (&route["gateway"], &route["dev"]))
                    .collect();
                let (gateway, dev) = &expected[at];
                ensure!(
                    routes == [(gateway, &json!(dev))],
                    "{}: default routes {routes:?}",
                    names[at]
                );
                self.exec(
                    names[at],
                    &["ping", "-c1", "-W5", "-I", "net1", addresses[1 - at]],
                )?;
            }
            Ok(())
        })
    }

    /// Creates many pods at the same time. Checks that all become Ready, and that no two have the
    /// same address.
    fn connection_limit(&self) -> Result<()> {
        let pod = |number: u16| {
            pod(
                &format!("many-{number}"),
                self.nodes[usize::from(number % 2)],
                &Value::Null,
            )
        };
        self.with_pods(
            "connection-limit",
            &(0..MANY).map(pod).collect::<Vec<_>>(),
            || self.have_networks(&[]),
        )
    }

    /// Checks a plugin in the folder that is named after the default network. braid runs this
    /// plugin as long as the plugin's file exists. The runtime itself does not run this plugin,
    /// because the runtime's network has another name.
    fn subdirectory_chaining(&self) -> Result<()> {
        let tuning = json!({"cniVersion": "0.4.0", "name": "sysctltwiddle", "type": "tuning",
            "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}});
        self.have_setting("subdirectory-chaining, before", "0")?;
        for node in self.nodes {
            let path = config::chain(self.cluster, node)?.join("sysctltwiddle.conf");
            config::put(&path, &tuning.to_string())?;
        }
        self.have_setting("subdirectory-chaining", "1")?;
        for node in self.nodes {
            config::delete(&config::chain(self.cluster, node)?)?;
        }
        self.have_setting("subdirectory-chaining, afterwards", "0")
    }

    fn have_setting(&self, what: &str, expected: &str) -> Result<()> {
        let pods = self
            .nodes
            .map(|node| pod(&format!("sysctl-modified-{node}"), node, &Value::Null));
        self.with_pods(what, &pods, || {
            for pod in pods
                .iter()
                .filter_map(|pod| pod["metadata"]["name"].as_str())
            {
                let value = self.exec(pod, &["cat", SETTING])?;
                ensure!(
                    value.trim() == expected,
                    "{pod}: {SETTING} is {value:?} instead of {expected}"
                );
            }
            Ok(())
        })
    }

    /// Creates pods, waits until all are Ready, calls `judge`, deletes the pods, and waits until no
    /// leftovers remain.
    fn with_pods(
        &self,
        what: &str,
        pods: &[Value],
        judge: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.cluster.create(pods)?;
        pods::await_ready(self.cluster, APP)?;
        judge()?;
        let traces = self
            .nodes
            .map(|node| (node, Traces::of(self.cluster, node, APP)));
        pods::delete(self.cluster, "pod", APP)?;
        for (node, traces) in traces {
            let traces = traces?;
            wait::eventually(LIMIT, || {
                leftovers::ensure_none(self.cluster, node, &traces)
            })?;
        }
        println!(
            "Multus' {what}: {} pods passed, and nothing is left of them",
            pods.len()
        );
        Ok(())
    }

    /// Fails unless the status of each pod lists the default network and then `networks`, and
    /// agrees with the pod's network namespace.
    fn have_networks(&self, networks: &[&str]) -> Result<()> {
        let others = networks.iter().map(|name| format!("default/{name}"));
        let names: Vec<String> = [DEFAULT_NAME.to_owned()]
            .into_iter()
            .chain(others)
            .collect();
        attached::check(self.cluster, (APP, self.nodes), |_| names.clone())
    }

    /// Fails unless `net1` of a pod is a macvlan in mode `bridge` with `address`, a prefix length
    /// of 24, and no other address.
    fn is_macvlan(&self, node: Node, pod: &str, address: &str) -> Result<()> {
        let links = self.ip(node, pod, &["-d", "addr", "show", "dev", "net1"])?;
        let kind = &links[0]["linkinfo"];
        ensure!(
            kind["info_kind"] == "macvlan" && kind["info_data"]["mode"] == "bridge",
            "{pod}: net1 is {kind}"
        );
        let shown = each(&links[0]["addr_info"]).filter(|shown| shown["family"] == "inet");
        let shown: Vec<_> = shown
            .map(|shown| (&shown["local"], &shown["prefixlen"]))
            .collect();
        ensure!(
            shown == [(&json!(address), &json!(24))],
            "{pod}: net1 has {shown:?} instead of {address}/24"
        );
        Ok(())
    }

    /// Runs `ip -j` in a pod's network namespace and returns its output.
    fn ip(&self, node: Node, pod: &str, words: &[&str]) -> Result<Value> {
        attached::in_pod(self.cluster, node, pod, &[&["ip", "-j"], words].concat())
    }

    /// Runs a busybox applet in a pod and returns its output.
    fn exec(&self, pod: &str, command: &[&str]) -> Result<String> {
        sh::read(
            self.cluster
                .kubectl(["exec", pod, "--", "busybox"])
                .args(command),
        )
    }
}

/// Returns the address of a node's bridge, which is the gateway of its pods.
fn bridge_address(cluster: &Cluster, node: Node) -> Result<String> {
    let shown =
        sh::read(&mut cluster.on(node, ["ip", "-j", "-4", "addr", "show", "dev", "cni0"])?)?;
    let links: Value = serde_json::from_str(&shown).context("parse the addresses of cni0")?;
    let address = links[0]["addr_info"][0]["local"].as_str();
    Ok(address
        .with_context(|| format!("cni0 of {node} has no address"))?
        .to_owned())
}

/// Returns a pod on `node` that requests `networks` and sleeps.
fn pod(name: &str, node: Node, networks: &Value) -> Value {
    let mut spec = pods::spec("exec sleep 1000000");
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": node.to_string()});
    let mut pod = pods::pod(name, APP, &spec);
    if !networks.is_null() {
        pod["metadata"]["annotations"] = json!({NETWORKS: networks.to_string()});
    }
    pod
}

/// Returns a `NetworkAttachmentDefinition`. Its configuration has no name, so the network gets the
/// name of the object.
fn network(name: &str, plugins: &Value) -> Value {
    let config = json!({"cniVersion": "0.4.0", "plugins": plugins}).to_string();
    json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "labels": {"app": APP}}, "spec": {"config": config}})
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
