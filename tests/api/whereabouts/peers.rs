//! braid and the real Whereabouts on one node: braid as the IPAM of its `bridge`, Whereabouts alone,
//! as an interface plugin starts it.

use super::Node;
use crate::proxy::Proxy;
use crate::{json, token};
use braid_tests::{Call, Ns, Value, binary, feature};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::rc::Rc;

/// Link to Whereabouts. In the sandbox's folder of plugins, the name is braid's.
const WHEREABOUTS: &str = "/run/whereabouts";
/// Flat file of both programs. Whereabouts fails without one.
const FLAT_FILE: &str = "/run/whereabouts.conf";

/// Program that assigns addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Whereabouts,
    Braid,
}

pub(super) use Program::{Braid, Whereabouts};

/// A node with both programs.
pub(super) struct Peers {
    pub(super) node: Node,
    whereabouts: Place,
    braid: Place,
}

/// Namespace of a program's objects, and the kubeconfig that names it.
struct Place {
    namespace: String,
    kubeconfig: String,
    /// User entry of the kubeconfig.
    user: Value,
}

/// Whereabouts' objects in a namespace.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Entries of all pools.
    pub(super) entries: Vec<Entry>,
    pub(super) reservations: Vec<Reservation>,
}

/// An entry of a pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) pool: String,
    /// Range of the pool.
    pub(super) range: String,
    pub(super) offset: String,
    pub(super) container: String,
    pub(super) ifname: String,
    pub(super) podref: String,
}

/// A reservation of an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reservation {
    pub(super) name: String,
    pub(super) ifname: String,
    pub(super) podref: String,
}

impl Peers {
    /// Creates a node whose programs share the objects of the Kubernetes namespace `test`. `None`
    /// without Whereabouts or an API server.
    pub(super) fn new(test: &str) -> Option<Self> {
        Self::apart(test, test)
    }

    /// Like [`Peers::new`], with braid's objects in the Kubernetes namespace `braid`.
    pub(super) fn apart(test: &str, braid: &str) -> Option<Self> {
        let Some(program) = binary::whereabouts() else {
            let why = "needs Whereabouts, which `cargo xtask test` builds";
            feature::tell_skip(&format!("api::whereabouts::{test}"), why);
            return None;
        };
        let node = Node::new(test)?;
        if braid != test {
            let create = ["create", "namespace", braid];
            node.world.server.kubectl(&create, None);
        }
        symlink(program, WHEREABOUTS).expect("a link to Whereabouts");
        fs::write(FLAT_FILE, flat_file().to_string()).expect("a flat file");
        let whereabouts = Place::new(&node, "whereabouts", &admin(&node), test);
        let braid = Place::new(&node, "braid", &node.user, braid);
        Some(Self {
            node,
            whereabouts,
            braid,
        })
    }

    /// Lets both programs act as `user`, the user entry of a kubeconfig.
    pub(super) fn act_as(&mut self, user: &Value) {
        for place in [&mut self.whereabouts, &mut self.braid] {
            place.user = user.clone();
            place.write(&self.node, &self.node.world.proxy);
        }
    }

    /// Lets both programs reach the API server through `proxy`.
    pub(super) fn go_through(&self, proxy: &Proxy) {
        for place in [&self.whereabouts, &self.braid] {
            place.write(&self.node, proxy);
        }
    }

    /// Creates pods on this node, and returns their network namespaces.
    pub(super) fn pods<const N: usize>(&self, names: [&str; N]) -> [Rc<Ns>; N] {
        self.create_pods(&names);
        names.map(|name| self.node.world.sandbox.pod(name))
    }

    /// Creates pods on this node, without network namespaces.
    pub(super) fn create_pods(&self, names: &[&str]) {
        let world = &self.node.world;
        let mut pods = Vec::new();
        for name in names {
            let container = json!({"name": "c", "image": "none"});
            pods.push(json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": world.namespace},
                "spec": {"nodeName": world.namespace, "containers": [container]},
            }));
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
        world.server.kubectl(&["create", "-f", "-"], Some(&list));
    }

    /// Returns a call for the pod with the name of `ns`. `by` assigns its addresses, with the keys of
    /// `ipam`. braid also attaches it to a bridge.
    pub(super) fn call(&self, by: Program, ns: &Ns, ipam: &Value) -> Call {
        let conf = json!({
            "cniVersion": "1.0.0",
            "name": "lan",
            "type": "bridge",
            "bridge": "lan0",
            "ipam": self.ipam(by, ipam),
        });
        let call = self.node.world.sandbox.call("bridge", ns, conf);
        let call = call.args(&self.args(ns.name()));
        match by {
            Whereabouts => call.by(WHEREABOUTS),
            Braid => call,
        }
    }

    /// Returns `CNI_ARGS` of a pod.
    pub(super) fn args(&self, pod: &str) -> String {
        let namespace = &self.node.world.namespace;
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={pod}")
    }

    fn ipam(&self, by: Program, more: &Value) -> Value {
        let mut ipam = json!({
            "type": "whereabouts",
            "configuration_path": FLAT_FILE,
            "kubernetes": {"kubeconfig": self.place(by).kubeconfig},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            ipam[key] = value.clone();
        }
        ipam
    }

    fn place(&self, by: Program) -> &Place {
        match by {
            Whereabouts => &self.whereabouts,
            Braid => &self.braid,
        }
    }

    /// Returns the objects of a program.
    pub(super) fn objects(&self, by: Program) -> Objects {
        let kinds = "ippools,overlappingrangeipreservations";
        let namespace = &self.place(by).namespace;
        let get = ["get", kinds, "-n", namespace, "-o", "json"];
        let list = self.node.world.server.kubectl(&get, None);
        let list: Value = serde_json::from_str(&list).expect("kubectl prints JSON");
        let mut objects = Objects::default();
        for item in list["items"].as_array().into_iter().flatten() {
            objects.insert(item);
        }
        objects.entries.sort();
        objects.reservations.sort();
        objects
    }

    /// Fails if an object of a program says that an address is in use.
    #[track_caller]
    pub(super) fn assert_all_free(&self, by: Program) {
        let objects = self.objects(by);
        assert_eq!(objects.entries, []);
        assert_eq!(objects.reservations, []);
    }
}

/// Returns the content of a flat file. Whereabouts' lease outlives a call on a slow machine, because a
/// call that loses its lease fails. Few calls renew it: the release of a lease fails if a renewal is
/// under way, and then the next call waits until the lease ends.
pub(super) fn flat_file() -> Value {
    json!({
        "type": "whereabouts",
        "leader_lease_duration": 6_000,
        "leader_renew_deadline": 5_000,
        "leader_retry_period": 400,
    })
}

/// Returns the user entry of the administrator's kubeconfig.
fn admin(node: &Node) -> Value {
    let [certificate, key] = &node.world.server.admin;
    let base64 = |text: &str| token::encode(text.as_bytes(), "base64");
    json!({"client-certificate-data": base64(certificate), "client-key-data": base64(key)})
}

impl Place {
    fn new(node: &Node, program: &str, user: &Value, namespace: &str) -> Self {
        let place = Self {
            namespace: namespace.to_owned(),
            kubeconfig: format!("/run/{program}.kubeconfig"),
            user: user.clone(),
        };
        place.write(node, &node.world.proxy);
        place
    }

    /// Writes the kubeconfig.
    fn write(&self, node: &Node, proxy: &Proxy) {
        let text = fs::read(&node.kubeconfig).expect("the node's kubeconfig");
        let mut config: Value = serde_json::from_slice(&text).expect("JSON");
        config["clusters"][0]["cluster"]["server"] = proxy.url().into();
        config["users"][0]["user"] = self.user.clone();
        config["contexts"][0]["context"]["namespace"] = self.namespace.as_str().into();
        fs::write(&self.kubeconfig, config.to_string()).expect("a kubeconfig");
    }
}

impl Objects {
    fn insert(&mut self, item: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, spec) = (text(&item["metadata"]["name"]), &item["spec"]);
        if item["kind"] == "OverlappingRangeIPReservation" {
            self.reservations.push(Reservation {
                name,
                ifname: text(&spec["ifname"]),
                podref: text(&spec["podref"]),
            });
            return;
        }
        for (offset, entry) in spec["allocations"].as_object().into_iter().flatten() {
            self.entries.push(Entry {
                pool: name.clone(),
                range: text(&spec["range"]),
                offset: offset.clone(),
                container: text(&entry["id"]),
                ifname: text(&entry["ifname"]),
                podref: text(&entry["podref"]),
            });
        }
    }

    /// Container ids of all entries.
    pub(super) fn containers(&self) -> BTreeSet<&str> {
        let entries = self.entries.iter();
        entries.map(|entry| entry.container.as_str()).collect()
    }

    /// References to pods in all entries and reservations.
    pub(super) fn podrefs(&self) -> BTreeSet<&str> {
        let entries = self.entries.iter().map(|entry| &entry.podref);
        let reservations = self.reservations.iter().map(|one| &one.podref);
        entries.chain(reservations).map(String::as_str).collect()
    }

    /// Names of all reservations.
    pub(super) fn reserved(&self) -> BTreeSet<&str> {
        let reservations = self.reservations.iter();
        reservations.map(|one| one.name.as_str()).collect()
    }
}
