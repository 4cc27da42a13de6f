//! Status of claimed devices, and the health of devices.

use super::kubelet::{HEALTHY, UNHEALTHY};
use super::{Node, SHARE, claim_of, prepared};
use crate::agent::{CONFLIST, await_true, serde_json_of};
use crate::json;
use braid_tests::{Call, Ns, Value};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Address of the pod.
const ADDRESS: &str = "172.31.220.5/24";

impl Node {
    /// Gives the agent the rights to the status of claims.
    fn allow_status(&self) {
        self.allow("claims", "get", "resourceclaims");
        let name = format!("{}-status", self.pair.world.namespace);
        let group = ["resource.k8s.io"];
        let rules = json!([
            {"apiGroups": group, "resources": ["resourceclaims/status"], "verbs": ["patch"]},
            // The token of the test does not name its node.
            {"apiGroups": group, "resources": ["resourceclaims/driver"], "verbs": ["arbitrary-node:patch"]},
        ]);
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rules,
        });
        let server = self.pair.world.server;
        server.kubectl(&["create", "-f", "-"], Some(&role));
        let subject = format!("--serviceaccount={}:agent", self.pair.world.namespace);
        let bound = format!("--clusterrole={name}");
        let binding = ["create", "clusterrolebinding", &name, &bound, &subject];
        server.kubectl(&binding, None);
    }

    /// Returns a claim with the managers of its fields.
    fn get_claim(&self, name: &str) -> Value {
        let namespace = &self.pair.world.namespace;
        let get = ["get", "resourceclaim", name, "-n", namespace];
        let more = ["-o", "json", "--show-managed-fields"];
        let text = self
            .pair
            .world
            .server
            .kubectl(&[&get, &more[..]].concat(), None);
        serde_json::from_str(&text).expect("JSON")
    }

    /// Returns the namespace of a pod, and the call that attaches it to the node's own network.
    fn runtime(&self, pod: &str) -> (Rc<Ns>, Call) {
        let world = &self.pair.world;
        let object = world.get("pod", pod);
        let ns = world.sandbox.pod(pod);
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={pod};K8S_POD_UID={}",
            world.namespace,
            crate::uid(&object)
        );
        let list = serde_json_of(CONFLIST);
        let mut conf = list["plugins"][0].clone();
        conf["cniVersion"] = list["cniVersion"].clone();
        conf["name"] = list["name"].clone();
        let call = world.sandbox.call("braid", &ns, conf).args(&args);
        (ns, call)
    }
}

/// Returns status and reason of the condition of the device.
fn condition(claim: &Value) -> [&str; 2] {
    let condition = &claim["status"]["devices"][0]["conditions"][0];
    ["status", "reason"].map(|key| condition[key].as_str().unwrap_or_default())
}

#[test]
fn the_status_of_a_claim_follows_its_pod() {
    let Some(node) = Node::new("claims-status", 237) else {
        return;
    };
    node.allow_status();
    let (agent, kubelet) = node.start();
    let network = json!({"type": "macvlan", "ipam": {"type": "static"}});
    let keys = json!({"interface": "data0", "ips": [ADDRESS], "network": network});
    let claim = node.claim("web", "100M", &keys);
    assert_eq!(kubelet.prepare_one(&claim), Ok(node.devices()));
    let (ns, call) = node.runtime("web");
    call.add().result();
    let mac = ns.the_link("data0")["address"].clone();
    await_true("a status", || {
        condition(&node.get_claim("web")) == ["True", "Attached"]
    });
    let found = node.get_claim("web");
    let mut device = found["status"]["devices"][0].clone();
    device["conditions"] = Value::Null;
    let network = json!({"interfaceName": "data0", "ips": [ADDRESS], "hardwareAddress": mac});
    assert_eq!(
        device,
        json!({
            "driver": "braid.dev",
            "pool": node.pair.names[0],
            "device": "nic0",
            "shareID": SHARE,
            "conditions": null,
            "networkData": network,
        })
    );
    let managers = found["metadata"]["managedFields"].as_array();
    let mut managers = managers.expect("managers").iter();
    let manager = format!("braid-{}", node.pair.names[0]);
    assert!(managers.any(|one| one["manager"] == *manager), "{found:#}");

    // Another agent writes nothing that is right.
    agent.kill();
    let (_agent, kubelet) = node.start();
    assert_eq!(kubelet.prepare_one(&claim), Ok(node.devices()));
    std::thread::sleep(Duration::from_secs(3));
    let version = |claim: &Value| claim["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&node.get_claim("web")), version(&found));
    call.del().ok();
    // As before another sandbox.
    assert_eq!(kubelet.prepare_one(&claim), Ok(node.devices()));
    await_true("no interface", || {
        condition(&node.get_claim("web")) == ["False", "NotAttached"]
    });
    kubelet.unprepare(&claim);
}

/// Lets the scheduler take a claim from a pod that was deleted by force, and allocate it to the next pod.
/// `change` edits the allocated device.
fn allocate_anew(node: &Node, claim: &Value, pods: [&str; 2], change: impl FnOnce(&mut Value)) {
    let [last, next] = pods;
    node.delete("pod", last);
    let none = json!({"allocation": null, "reservedFor": null, "devices": null});
    let name = claim["metadata"]["name"].as_str().expect("a name");
    node.set_status(name, &none);
    let mut pod = node.pod_of(next);
    pod["spec"]["resourceClaims"][0]["resourceClaimName"] = name.into();
    let pod = node.pair.world.create(pod);
    let mut status = node.allocated(claim, "300M", &pod);
    change(&mut status["allocation"]["devices"]["results"][0]);
    node.set_status(name, &status);
}

/// Returns the pod and the rate in the file of a prepared claim.
fn file_of(claim: &Value) -> (String, Value) {
    let file = prepared(claim);
    let pod = file["claim"]["pods"][0]["name"].as_str();
    (
        pod.expect("a pod").to_owned(),
        file["uses"][0]["rate"].clone(),
    )
}

#[test]
fn a_claim_with_a_new_allocation_follows_its_next_pod() {
    let Some(node) = Node::new("claims-anew", 227) else {
        return;
    };
    node.allow_status();
    let (_agent, kubelet) = node.start();
    let network = json!({"type": "macvlan", "ipam": {"type": "static"}});
    let keys = json!({"interface": "data0", "ips": [ADDRESS], "network": network});
    let claim = node.claim("nic", "100M", &keys);
    assert_eq!(kubelet.prepare_one(&claim), Ok(node.devices()));
    let (_ns, call) = node.runtime("nic");
    call.add().result();
    let is_attached = |share: &str| {
        let claim = node.get_claim("nic");
        condition(&claim) == ["True", "Attached"]
            && claim["status"]["devices"][0]["shareID"] == share
    };
    await_true("a status", || is_attached(SHARE));
    call.del().ok();

    // The kubelet does not prepare the claim for the next pod.
    let second = "0b0f6c0e-6a0b-4a0a-8e3e-0f1f0c0a0b0c";
    allocate_anew(&node, &claim, ["nic", "second"], |device| {
        device["shareID"] = second.into();
    });
    let (_ns, call) = node.runtime("second");
    call.add().result();
    await_true("a status of the second pod", || is_attached(second));
    assert_eq!(file_of(&claim), ("second".to_owned(), json!(300_000_000)));
    call.del().ok();

    // It prepares the claim for this one.
    let third = "1c1f6c0e-6a0b-4a0a-8e3e-0f1f0c0a0b0c";
    allocate_anew(&node, &claim, ["second", "third"], |device| {
        device["shareID"] = third.into();
        device["consumedCapacity"]["bandwidth"] = "200M".into();
    });
    kubelet.prepare_one(&claim).expect("devices");
    let (_ns, call) = node.runtime("third");
    call.add().result();
    await_true("a status of the third pod", || is_attached(third));
    assert_eq!(file_of(&claim), ("third".to_owned(), json!(200_000_000)));

    // This allocation exceeds the link: the status is written, and the file stays.
    call.del().ok();
    let fourth = "2d2f6c0e-6a0b-4a0a-8e3e-0f1f0c0a0b0c";
    allocate_anew(&node, &claim, ["third", "fourth"], |device| {
        device["shareID"] = fourth.into();
        device["consumedCapacity"]["bandwidth"] = "2G".into();
    });
    let (_ns, call) = node.runtime("fourth");
    call.add().result();
    await_true("a status of the fourth pod", || is_attached(fourth));
    await_true("an event", || node.refusal("fourth").is_some());
    assert_eq!(file_of(&claim), ("third".to_owned(), json!(200_000_000)));
    call.del().ok();
    kubelet.unprepare(&claim);
}

#[test]
fn a_whole_link_has_a_status_for_each_pod_of_its_claim() {
    let Some(node) = Node::new("claims-whole", 228) else {
        return;
    };
    node.allow_status();
    let (_agent, kubelet) = node.start();
    let whole = |device: &mut Value| {
        device["device"] = "nic0-whole".into();
        let device = device.as_object_mut().expect("an object");
        device.remove("shareID");
        device.remove("consumedCapacity");
    };
    let world = &node.pair.world;
    let pod = world.create(node.pod_of("nic"));
    let keys = json!({"interface": "data0", "ips": [ADDRESS]});
    let claim = world.create(claim_of("nic", &keys));
    let mut status = node.allocated(&claim, "1M", &pod);
    whole(&mut status["allocation"]["devices"]["results"][0]);
    node.set_status("nic", &status);
    kubelet.prepare_one(&claim).expect("devices");
    let (_ns, call) = node.runtime("nic");
    call.add().result();
    let is_attached = || condition(&node.get_claim("nic")) == ["True", "Attached"];
    await_true("a status", is_attached);
    call.del().ok();
    allocate_anew(&node, &claim, ["nic", "second"], whole);
    assert!(!is_attached());
    kubelet.prepare_one(&claim).expect("devices");
    let (_ns, call) = node.runtime("second");
    call.add().result();
    await_true("a status of the second pod", is_attached);
    assert_eq!(file_of(&claim), ("second".to_owned(), Value::Null));
    call.del().ok();

    // The kubelet does not prepare the claim for the next pod.
    allocate_anew(&node, &claim, ["second", "third"], whole);
    assert!(!is_attached());
    let (_ns, call) = node.runtime("third");
    call.add().result();
    await_true("a status of the third pod", is_attached);
    assert_eq!(file_of(&claim), ("third".to_owned(), Value::Null));
    call.del().ok();

    // Nor for this one, which has another link.
    let host = node.pair.world.sandbox.host();
    host.run("ip link add nic1 type veth peer name far1");
    host.run("ip link set nic1 up");
    allocate_anew(&node, &claim, ["third", "fourth"], |device| {
        whole(device);
        device["device"] = "nic1-whole".into();
    });
    let (_ns, call) = node.runtime("fourth");
    call.add().result();
    await_true("a status of the fourth pod", is_attached);
    await_true("the file of the fourth pod", || {
        prepared(&claim)["claim"]["pods"][0]["name"] == "fourth"
    });
    let shares = &prepared(&claim)["claim"]["shares"];
    assert_eq!(shares[0]["device"], "nic1-whole");
    call.del().ok();
    kubelet.unprepare(&claim);
}

#[test]
fn the_kubelet_gets_the_health_of_devices() {
    let Some(node) = Node::new("claims-health", 238) else {
        return;
    };
    let (_agent, kubelet) = node.start();
    let mut health = kubelet.health();
    let both = |health: i32, message: &str| {
        let one = (health, message.to_owned());
        let names = ["nic0", "nic0-whole"].map(str::to_owned);
        BTreeMap::from(names.map(|name| (name, one.clone())))
    };
    let pool = &node.pair.names[0];
    health.await_devices(pool, &both(HEALTHY, ""));
    let host = node.pair.world.sandbox.host();
    host.run("ip link set far0 down");
    health.await_devices(pool, &both(UNHEALTHY, "the link has no carrier"));
    host.run("ip link set far0 up");
    health.await_devices(pool, &both(HEALTHY, ""));
    host.run("ip link del nic0");
    health.await_devices(pool, &both(UNHEALTHY, "the link is not offered any more"));
}
