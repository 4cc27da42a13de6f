//! A pod's networks through the program: tests call braid as a runtime would. They check the result
//! with the kernel, `kubectl` and a foreign plugin that logs its calls. A comment above a test
//! names the requirements of docs/conformance.md that it covers.

mod chained;
pub(crate) mod claims;
mod devices;
mod faults;
mod hostile;
mod invalid;
mod lost;
mod multus;
mod networks;
mod order;
mod rights;
mod routes;
mod secrets;
mod selection;
mod status;
mod taken_over;

use crate::{Fault, World, json, uid};
use braid_core::k8s::{NETWORK_STATUS, NETWORKS};
use braid_tests::{Call, Ns, Value};
use std::fs;
use std::rc::Rc;

/// Path of the default network's configuration.
const DEFAULT: &str = "/etc/cni/default.conflist";
/// Folder with configurations of networks whose NetworkAttachmentDefinition has only a name.
const CONF_DIR: &str = "/etc/cni/more";

/// A node with braid: a [`World`] with a default network, the foreign plugins `spy` and `spy2`, and
/// networks in the test's Kubernetes namespace.
pub(crate) struct Node {
    pub(crate) world: World,
}

/// A pod with a container, and the call with which the runtime attaches it.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) ns: Rc<Ns>,
    pub(crate) call: Call,
}

impl Node {
    fn new(namespace: &str, networks: &[(&str, Value)]) -> Option<Self> {
        Self::with(namespace, networks, Vec::new(), Fault::None)
    }

    fn with(
        namespace: &str,
        networks: &[(&str, Value)],
        faults: Vec<Fault>,
        then: Fault,
    ) -> Option<Self> {
        Some(Self::of(World::with(namespace, faults, then)?, networks))
    }

    pub(crate) fn of(world: World, networks: &[(&str, Value)]) -> Self {
        let node = Self { world };
        node.world
            .kubeconfig(&json!({"token": node.world.server.token}));
        fs::create_dir_all(CONF_DIR).expect("a folder for networks");
        Self::set_default(&bridged(0));
        for plugin in ["spy", "spy2"] {
            node.world.sandbox.script(plugin, include_str!("spy.py"));
        }
        node.create_networks(networks);
        node
    }

    fn set_default(network: &Value) {
        fs::write(DEFAULT, network.to_string()).expect("write the default network");
    }

    /// Creates NetworkAttachmentDefinitions. A string is the text of the configuration. Null means
    /// that the object has no configuration.
    fn create_networks(&self, networks: &[(&str, Value)]) {
        let object = |(name, config): &(&str, Value)| {
            let (namespace, name) = name
                .split_once('/')
                .unwrap_or((&self.world.namespace, name));
            let spec = match config {
                Value::Null => json!({}),
                Value::String(text) => json!({"config": text}),
                config => json!({"config": config.to_string()}),
            };
            let [api, kind] = ["k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition"];
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
        };
        let items: Vec<Value> = networks.iter().map(object).collect();
        if !items.is_empty() {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            self.world
                .server
                .kubectl(&["create", "-f", "-"], Some(&list));
        }
    }

    /// Creates a pod that requests `networks`, and the network namespace of its container.
    fn pod(&self, name: &str, networks: &str) -> Pod {
        self.annotated(name, &json!({NETWORKS: networks}))
    }

    fn annotated(&self, name: &str, annotations: &Value) -> Pod {
        self.container(&self.world.create_pod(name, annotations))
    }

    /// Creates all pods in one API request. Each entry is a pod's name and the networks that it
    /// requests.
    fn pods(&self, networks: &[(String, &str)]) -> Vec<Pod> {
        let object = |(name, networks): &(String, &str)| {
            let metadata = json!({"name": name, "namespace": self.world.namespace, "annotations": {NETWORKS: networks}});
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {"containers": [{"name": "c", "image": "none"}]}})
        };
        let items: Vec<Value> = networks.iter().map(object).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.world
            .server
            .kubectl(&["create", "-f", "-"], Some(&list));
        let made = self.world.server.kubectl(
            &["get", "pods", "-n", &self.world.namespace, "-o", "json"],
            None,
        );
        let made: Value = serde_json::from_str(&made).expect("kubectl prints JSON");
        let made = made["items"].as_array().expect("a list").iter();
        let made: Vec<&Value> = made.collect();
        let of =
            |(name, _): &(String, &str)| made.iter().find(|pod| pod["metadata"]["name"] == **name);
        networks
            .iter()
            .map(|one| self.container(of(one).expect("a pod")))
            .collect()
    }

    /// Creates the network namespace of a pod's container, and the call that attaches it.
    pub(crate) fn container(&self, pod: &Value) -> Pod {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let (ns, world) = (self.world.sandbox.pod(name), &self.world);
        let conf = json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "braid",
            "kubeconfig": "/run/kubeconfig", "clusterNetwork": DEFAULT, "confDir": CONF_DIR,
        });
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={name};K8S_POD_UID={};K8S_POD_INFRA_CONTAINER_ID={name}",
            world.namespace,
            uid(pod)
        );
        let call = world.sandbox.call("braid", &ns, conf).args(&args);
        Pod {
            name: name.to_owned(),
            ns,
            call,
        }
    }

    /// Returns the entries of the pod's `network-status` annotation; empty if there is no
    /// annotation.
    fn status(&self, pod: &Pod) -> Vec<Value> {
        Self::status_of(&self.world.get("pod", &pod.name))
    }

    fn status_of(pod: &Value) -> Vec<Value> {
        let Some(text) = pod["metadata"]["annotations"][NETWORK_STATUS].as_str() else {
            return Vec::new();
        };
        serde_json::from_str(text).expect("a list of objects")
    }

    /// Returns `<name> <interface> <default>` of each entry in the pod's `network-status`
    /// annotation.
    fn entries(&self, pod: &Pod) -> Vec<String> {
        let own = format!("{}/", self.world.namespace);
        let line = |entry: &Value| {
            let text = |key: &str| entry[key].to_string().replace('"', "").replace(&own, "");
            ["name", "interface", "default"].map(text).join(" ")
        };
        self.status(pod).iter().map(line).collect()
    }

    /// Returns `<type> <reason>: <message>` of each event in the test's Kubernetes namespace.
    fn events(&self) -> Vec<String> {
        let json = self.world.server.kubectl(
            &["get", "events", "-n", &self.world.namespace, "-o", "json"],
            None,
        );
        let list: Value = serde_json::from_str(&json).expect("kubectl prints JSON");
        let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let line = |event: &Value| {
            format!(
                "{} {}: {}",
                text(event, "type"),
                text(event, "reason"),
                text(event, "message")
            )
        };
        list["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(line)
            .collect()
    }

    /// Returns `<verb> <resource>` of each request that braid's account has sent about objects in
    /// the test's Kubernetes namespace.
    fn requests(&self) -> Vec<String> {
        self.requests_of("braid")
    }

    /// Returns `<verb> <resource>` of each request that `account` has sent about objects in the
    /// test's Kubernetes namespace.
    fn requests_of(&self, account: &str) -> Vec<String> {
        let audit = self
            .world
            .server
            .audit_of(&format!("kube-system:{account}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_own = |event: &&Value| {
            event["objectRef"]["namespace"] == self.world.namespace
                && event["stage"] == "ResponseComplete"
        };
        let line = |event: &Value| {
            let object = &event["objectRef"];
            let below = object["subresource"]
                .as_str()
                .map(|below| format!("/{below}"))
                .unwrap_or_default();
            format!(
                "{} {}{below}",
                text(&event["verb"]),
                text(&object["resource"])
            )
        };
        audit.requests().iter().filter(is_own).map(line).collect()
    }

    /// Fails if a failed or undone call has left anything in the pod or on the node.
    #[track_caller]
    fn assert_nothing_left(&self, pod: &Pod) {
        self.world.sandbox.assert_nothing_left();
        assert_eq!(pod.ns.link_names(), [""; 0], "in the pod");
    }
}

/// Returns the configuration of a bridge with a gateway in 10.`number`.0.0/24. Number 0 is the
/// default network, which also has the pod's default route.
fn bridged(number: u8) -> Value {
    let mut ipam = json!({"type": "host-local", "subnet": format!("10.{number}.0.0/24")});
    if number == 0 {
        ipam["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    }
    let name = if number == 0 {
        "default".to_owned()
    } else {
        format!("lan{number}")
    };
    let bridge = json!({"type": "bridge", "bridge": format!("br{number}"), "isGateway": true, "isDefaultGateway": false, "ipam": ipam});
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [bridge]})
}

/// Returns the configuration of a network with the plugin `spy` and the keys of `more`.
fn spy(name: &str, more: &Value) -> Value {
    let mut conf = json!({"cniVersion": "1.0.0", "name": name, "type": "spy"});
    for (key, value) in more.as_object().into_iter().flatten() {
        conf[key] = value.clone();
    }
    conf
}

/// Returns all calls that the spy plugins have logged so far.
fn spied() -> Vec<Value> {
    let log = fs::read_to_string("/run/spied").unwrap_or_default();
    log.lines()
        .map(|line| serde_json::from_str(line).expect("a call"))
        .collect()
}

/// Returns `<verb> <network> <interface> <plugin>` of each call that the spy plugins have logged,
/// and clears the log.
fn calls() -> Vec<String> {
    let line = |call: &Value| {
        let text = |key: &str| call[key].as_str().unwrap_or_default();
        ["COMMAND", "network", "IFNAME", "plugin"]
            .map(text)
            .join(" ")
    };
    let calls = spied().iter().map(line).collect();
    let _ = fs::remove_file("/run/spied");
    calls
}
