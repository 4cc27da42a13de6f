//! Devices of a node: its links as ResourceSlices, which follow the links, the Node and the kubelet.

use super::node::{configure, events};
use super::{Agent, Pair, ask, await_true, is_ready};
use crate::json;
use braid_tests::Value;
use std::fs;
use std::time::{Duration, Instant};

/// Longest time until slices are right, with the time of kubectl.
const SOON: Duration = Duration::from_secs(3);
/// Network of another program that runtimes use before braid's.
const FIRST: &str = "/etc/cni/net.d/00-a.conflist";
const CONFIG: &str = "
mode: direct
dra:
  enabled: true
  include: ['nic*', other]
  capacity: {'nic*': 25G}
";

/// A node with a pair of links, `nic0` and `far0`.
struct Node {
    pair: Pair,
}

impl Node {
    fn new(test: &str, net: u8) -> Option<Self> {
        let pair = Pair::new(test, net)?;
        let host = pair.world.sandbox.host();
        host.run("ip link add nic0 type veth peer name far0");
        for link in ["nic0", "far0"] {
            host.run(&format!("ip link set {link} up"));
        }
        let role = format!("{test}-slices");
        let rights = "--verb=list,watch,create,update,delete";
        let resource = "--resource=resourceslices.resource.k8s.io";
        let server = pair.world.server;
        server.kubectl(&["create", "clusterrole", &role, rights, resource], None);
        let subject = format!("--serviceaccount={}:agent", pair.world.namespace);
        let bound = format!("--clusterrole={role}");
        let binding = ["create", "clusterrolebinding", &role, &bound, &subject];
        server.kubectl(&binding, None);
        configure(&pair, CONFIG);
        Some(Self { pair })
    }

    fn start(&self) -> Agent {
        let map = self.pair.config_map();
        // The usual folder is that of the real host's kubelet.
        let arguments = ["--config-map", &map, "--kubelet-root-dir", "/run/kubelet"];
        let agent = self.pair.start_with(&arguments);
        await_true("readiness", is_ready);
        agent
    }

    fn ip(&self, command: &str) {
        let host = self.pair.world.sandbox.host();
        host.run(&format!("ip link {command}"));
    }

    fn slices(&self) -> Vec<Value> {
        let fields = format!("--field-selector=spec.nodeName={}", self.pair.names[0]);
        let get = ["get", "resourceslices", &fields, "-o", "json"];
        let listed = self.pair.world.server.kubectl(&get, None);
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        listed["items"].as_array().cloned().unwrap_or_default()
    }

    /// Returns the devices of the slices, which are those of one pool.
    fn devices(&self) -> Vec<Value> {
        let slices = self.slices();
        let mut devices = Vec::new();
        for slice in &slices {
            let pool = &slice["spec"]["pool"];
            let is_whole = pool["resourceSliceCount"] == slices.len();
            if !is_whole || pool["generation"] != slices[0]["spec"]["pool"]["generation"] {
                return Vec::new();
            }
            devices.extend(
                slice["spec"]["devices"]
                    .as_array()
                    .cloned()
                    .into_iter()
                    .flatten(),
            );
        }
        devices
    }

    fn device(&self, name: &str) -> Option<Value> {
        let mut devices = self.devices().into_iter();
        devices.find(|device| device["name"] == name)
    }

    fn names(&self) -> Vec<String> {
        let names = self.devices().into_iter();
        let names = names.map(|device| device["name"].as_str().unwrap_or_default().to_owned());
        names.collect()
    }

    /// Returns names and versions of the slices.
    fn versions(&self) -> Vec<[Value; 2]> {
        let slices = self.slices().into_iter();
        slices
            .map(|slice| ["name", "resourceVersion"].map(|key| slice["metadata"][key].clone()))
            .collect()
    }

    #[track_caller]
    fn await_soon(&self, what: &str, mut is_true: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        await_true(what, || is_true(self));
        let elapsed = start.elapsed();
        eprintln!("{what}: {:.1} s", elapsed.as_secs_f64());
        assert!(elapsed < SOON, "{what} took {elapsed:?}");
    }
}

#[test]
fn links_are_offered_and_their_changes_are_followed() {
    let Some(node) = Node::new("slices-links", 231) else {
        return;
    };
    let _agent = node.start();
    let all = ["nic0", "nic0-whole", "other"];
    node.await_soon("devices", |node| node.names() == all);
    let device = node.device("nic0").expect("a device");
    let mac = node.pair.world.sandbox.host().the_link("nic0")["address"].clone();
    assert_eq!(
        device["attributes"],
        json!({
            "ifName": {"string": "nic0"},
            "mac": {"string": mac},
            "mtu": {"int": 1500},
            "speed": {"int": 10_000},
            "state": {"string": "up"},
            "type": {"string": "veth"},
            "virtual": {"bool": true},
        })
    );
    assert_eq!(device["allowMultipleAllocations"], true);
    let policy = json!({"default": "250M", "validRange": {"min": "1M", "max": "25G"}});
    let bandwidth = json!({"value": "25G", "requestPolicy": policy});
    assert_eq!(device["capacity"]["bandwidth"], bandwidth);
    // The driver of a veth says 10 Gbit/s.
    let other = node.device("other").expect("the uplink");
    assert_eq!(other["capacity"]["bandwidth"]["value"], "10G");

    node.ip("set nic0 mtu 9000");
    node.await_soon("the MTU", |node| {
        let device = node.device("nic0").unwrap_or_default();
        device["attributes"]["mtu"]["int"] == 9000
    });
    let generation = &node.slices()[0]["spec"]["pool"]["generation"];
    assert_eq!(*generation, 1, "one slice changed");
    node.ip("set far0 down");
    let has_taint = |node: &Node| {
        let device = node.device("nic0-whole").unwrap_or_default();
        device["taints"][0]["key"] == "braid.dev/link-down"
    };
    node.await_soon("a taint", has_taint);
    node.ip("set far0 up");
    node.await_soon("no taint", |node| !has_taint(node));
    node.ip("set nic0 down");
    node.ip("set nic0 name nic.5");
    node.ip("set nic.5 up");
    node.await_soon("the new name", |node| {
        let mut names = node.names().into_iter();
        names.any(|name| name.starts_with("nic-5-")) && node.device("nic0").is_none()
    });
    node.ip("del nic.5");
    node.await_soon("no device", |node| node.names() == ["other"]);
    assert_eq!(node.slices().len(), 1, "without counters");
}

#[test]
fn a_link_with_a_labelled_address_is_not_offered_whole() {
    let Some(node) = Node::new("slices-label", 219) else {
        return;
    };
    let host = node.pair.world.sandbox.host();
    host.run("ip addr add 198.51.100.5/24 dev nic0 label nic0:vip");
    let _agent = node.start();
    node.await_soon("devices", |node| !node.names().is_empty());
    assert_eq!(node.names(), ["nic0", "other"]);
}

#[test]
fn a_macvlan_over_an_offered_link_is_offered_only_by_its_name() {
    let Some(node) = Node::new("slices-over", 230) else {
        return;
    };
    node.ip("add nic1 link nic0 type macvlan mode bridge");
    node.ip("set nic1 up");
    let _agent = node.start();
    let lower = ["nic0", "nic0-whole", "other"];
    node.await_soon("devices", |node| node.names() == lower);
    let named = CONFIG.replace("['nic*'", "['nic*', nic1");
    configure(&node.pair, &named);
    let both = ["nic0", "nic0-whole", "nic1", "nic1-whole", "other"];
    node.await_soon("the macvlan", |node| node.names() == both);
    configure(&node.pair, &format!("{CONFIG}  exclude: [nic0]\n"));
    let upper = ["nic1", "nic1-whole", "other"];
    node.await_soon("the macvlan alone", |node| node.names() == upper);
}

#[test]
fn lost_slices_come_back_and_a_node_that_is_registered_again_owns_them() {
    let Some(node) = Node::new("slices-lost", 232) else {
        return;
    };
    let agent = node.start();
    node.await_soon("devices", |node| node.devices().len() == 3);
    // As a kubelet does at each start.
    let name = &node.pair.names[0];
    let fields = format!("--field-selector=spec.nodeName={name}");
    let server = node.pair.world.server;
    server.kubectl(&["delete", "resourceslices", &fields], None);
    node.await_soon("devices again", |node| node.devices().len() == 3);
    node.pair.delete_node(name);
    node.pair.create_node(name, "10.232.1.0/24", "192.0.2.1");
    let uid = ["get", "node", name, "-o", "jsonpath={.metadata.uid}"];
    let uid = server.kubectl(&uid, None);
    node.await_soon("the new owner", |node| {
        let owned = |slice: &Value| slice["metadata"]["ownerReferences"][0]["uid"] == uid.trim();
        node.devices().len() == 3 && node.slices().iter().all(owned)
    });
    // Neither the end of the agent nor its start writes slices that are right.
    let before = node.versions();
    agent.stop();
    assert_eq!(node.versions(), before);
    let agent = node.start();
    node.ip("set nic0 mtu 1400");
    node.await_soon("the MTU", |node| {
        let device = node.device("nic0").unwrap_or_default();
        device["attributes"]["mtu"]["int"] == 1400
    });
    let after = node.versions();
    let same = before.iter().filter(|slice| after.contains(slice)).count();
    assert_eq!((after.len(), same), (2, 1), "the counters are the same");
    configure(&node.pair, "mode: direct");
    node.await_soon("no slices", |node| node.slices().is_empty());
    agent.stop();
}

#[test]
fn a_node_on_which_runtimes_do_not_call_braid_offers_nothing() {
    let Some(node) = Node::new("slices-foreign", 233) else {
        return;
    };
    let _agent = node.start();
    node.await_soon("devices", |node| node.devices().len() == 3);
    let list = json!({"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}]});
    fs::write(FIRST, list.to_string()).expect("a configuration");
    // The agent looks at the folder at each comparison.
    configure(&node.pair, &format!("{CONFIG}mtu: 1400\n"));
    node.await_soon("no slices", |node| node.slices().is_empty());
    let body = || ask("/readyz").unwrap_or_default().1;
    await_true("a remark", || {
        let body = body();
        body.contains("no devices are offered") && body.contains(FIRST)
    });
    await_true("an event", || {
        !events(&node.pair, "DevicesNotOffered").is_empty()
    });
    fs::remove_file(FIRST).expect("a configuration");
    configure(&node.pair, CONFIG);
    node.await_soon("devices again", |node| node.devices().len() == 3);
    await_true("no remark", || !body().contains("devices"));
}
