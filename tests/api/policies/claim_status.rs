//! Status of claims, on API servers that do not limit a token to the devices of its node: the policy decides.

use super::device_status::result;
use super::{Nodes, PATIENCE, Refusal, accepted, assert_refused};
use crate::json;
use braid_core::dra::claim::Claim;
use braid_core::dra::device_status;
use braid_tests::Value;
use std::slice::from_ref;
use std::time::{Duration, Instant};

const STATUS: &str = "ValidatingAdmissionPolicy 'braid-dra-status' with binding 'braid-dra-status'";
const OTHER_FIELD: &str = "denied request: only the status of devices";
const OTHER_DEVICE: &str =
    "denied request: only devices of the driver braid.dev, in the pool of the own node";
const RBAC: &str = "rbac.authorization.k8s.io";
/// Maximum number of devices of a claim in the API server.
const MAX_DEVICES: usize = 32;
/// Length in bytes of the text in the `data` of a device: all of them are in one argument of kubectl.
const MAX_DATA: usize = 2000;

/// Returns an id of a share.
fn share(number: usize) -> String {
    format!("aed5bbdc-6a0b-4a0a-8e3e-{number:012}")
}

/// Returns the status of a device.
fn device(driver: &str, node: &str, interface: &str) -> Value {
    json!({"driver": driver, "pool": node, "device": "eth1", "shareID": share(1),
        "networkData": {"interfaceName": interface}})
}

impl Nodes {
    /// Gives braid's account the rights to claims that it has on Kubernetes 1.35: to all of the status
    /// of each claim.
    fn allow_all_of_status(&self) {
        let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": verbs});
        // The API server asks about `binding` for the cluster, and about `driver` in the claim's namespace,
        // so other tests still see a token's usual right to devices.
        let status = ["resourceclaims/status", "resourceclaims/binding"];
        let status = status.map(|resource| rule(resource, &["patch", "update"]));
        let verbs = ["arbitrary-node:patch", "arbitrary-node:update"];
        let devices = [rule("resourceclaims/driver", &verbs)];
        let subject =
            json!({"kind": "ServiceAccount", "name": "braid", "namespace": "kube-system"});
        let mut items = Vec::new();
        for (prefix, rules) in [("Cluster", &status[..]), ("", &devices)] {
            let mut metadata = json!({"name": self.test});
            if prefix.is_empty() {
                metadata["namespace"] = self.test.into();
            }
            let kind = format!("{prefix}Role");
            let version = format!("{RBAC}/v1");
            items.push(
                json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules}),
            );
            let role = json!({"apiGroup": RBAC, "kind": kind, "name": self.test});
            let kind = format!("{prefix}RoleBinding");
            items.push(
                json!({"apiVersion": version, "kind": kind, "metadata": metadata,
                "roleRef": role, "subjects": [subject]}),
            );
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.server.kubectl(&["create", "-f", "-"], Some(&list));
    }

    /// Waits until the account has the rights, and the API server applies the policy.
    #[track_caller]
    fn await_policy(&self, with: &str, claim: &str) {
        let start = Instant::now();
        for attempt in 0.. {
            // Each attempt reserves for another pod, or nothing would change.
            let pod = json!({"resource": "pods", "name": "a", "uid": format!("u{attempt}")});
            let patch = json!({"status": {"reservedFor": [pod]}});
            let outcome = self.patch_claim(with, (claim, "/status"), &patch);
            if matches!(&outcome, Err((_, message)) if message.contains(STATUS)) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "no policy: {outcome:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Sets the status of a claim's devices.
    fn set_devices(&self, with: &str, claim: &str, devices: &[Value]) -> Result<(), Refusal> {
        let patch = json!({"status": {"devices": devices}});
        self.patch_claim(with, (claim, "/status"), &patch)
    }

    fn get_claim(&self, name: &str) -> Value {
        let get = ["get", "resourceclaim", name, "-n", self.test, "-o", "json"];
        serde_json::from_str(&self.server.kubectl(&get, None)).expect("kubectl prints JSON")
    }

    /// Applies the status of a claim without interfaces, as the driver does.
    fn apply_claim(&self, with: &str, name: &str, now: &str) -> Result<Value, Refusal> {
        let claim = self.get_claim(name).to_string();
        let claim = Claim::parse(claim.as_bytes()).expect("a claim");
        let statuses = device_status::statuses(&claim, &[], &[], now);
        let patch = device_status::patch(&claim, &statuses);
        let manager = device_status::manager(&self.node(1));
        let path = format!(
            "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{name}/status?fieldManager={manager}&force=true",
            self.test
        );
        let request = ["PATCH", &path, "apply-patch+yaml"];
        let body = accepted(self.server.request(with, request, &patch))?;
        Ok(serde_json::from_str(&body).expect("JSON"))
    }
}

#[test]
fn a_token_changes_no_allocation_and_no_devices_of_other_nodes() {
    let Some(nodes) = Nodes::new("policy-claim-status") else {
        return;
    };
    nodes.apply_dra();
    nodes.allow_all_of_status();
    let [first, second] = [1, 2].map(|number| nodes.node(number));
    let id = share(1);
    let mut foreign = result(&first, &id);
    foreign["driver"] = "other.example".into();
    let results = json!([result(&first, &id), result(&second, &id), foreign]);
    nodes.claim("all", &first, &results);
    nodes.claim("other", &second, &json!([result(&second, &id)]));
    nodes.claim("deallocated", &first, &json!([]));
    nodes.set_claim_status("deallocated", &json!({"allocation": null}));
    let own = nodes.server.bound_token("braid", "Node", &first);
    let unbound = nodes.server.create_token("braid");
    nodes.await_policy(&own, "other");

    // An allocation with parameters that only a class may have.
    let parameters = json!({"kind": "Attachment", "network": {"plugins": [{"type": "tuning"}]}});
    let opaque = json!({"driver": "braid.dev", "parameters": parameters});
    let config = json!([{"source": "FromClass", "opaque": opaque}]);
    let results = json!([result(&second, &id)]);
    let allocation = json!({"devices": {"results": results, "config": config}});
    let pod = json!({"resource": "pods", "name": "own", "uid": "u"});
    for (claim, status) in [
        ("deallocated", json!({"allocation": allocation})),
        ("all", json!({"allocation": null})),
        ("other", json!({"allocation": null, "reservedFor": null})),
        ("all", json!({"reservedFor": [pod]})),
    ] {
        let patch = json!({"status": status});
        let outcome = nodes.patch_claim(&own, (claim, "/status"), &patch);
        assert_refused(&outcome, STATUS, OTHER_FIELD);
    }

    let ours = device("braid.dev", &first, "data0");
    let others = device("braid.dev", &second, "data0");
    let foreign = device("other.example", &first, "data0");
    for added in [&others, &foreign] {
        let outcome = nodes.set_devices(&own, "all", from_ref(added));
        assert_refused(&outcome, STATUS, OTHER_DEVICE);
    }
    let outcome = nodes.set_devices(&own, "other", from_ref(&others));
    assert_refused(&outcome, STATUS, OTHER_DEVICE);
    let outcome = nodes.set_devices(&unbound, "all", from_ref(&ours));
    assert_refused(&outcome, STATUS, OTHER_DEVICE);

    let before = [others, foreign];
    nodes.set_claim_status("all", &json!({"devices": before}));
    let [others, foreign] = before;
    let status = nodes.get_claim("all")["status"].clone();
    let set = |devices: &[&Value]| {
        let devices: Vec<Value> = devices.iter().map(|device| (*device).clone()).collect();
        nodes.set_devices(&own, "all", &devices)
    };
    set(&[&foreign, &ours, &others]).expect("the own device");
    let changed = device("braid.dev", &second, "data1");
    for devices in [&[&ours, &changed, &foreign][..], &[&ours, &foreign], &[]] {
        assert_refused(&set(devices), STATUS, OTHER_DEVICE);
    }
    let ours = device("braid.dev", &first, "data1");
    set(&[&others, &foreign, &ours]).expect("another state of the own device");
    set(&[&others, &foreign]).expect("the own device may go");
    assert_eq!(nodes.get_claim("all")["status"], status);
}

#[test]
fn the_driver_applies_its_device_beside_the_most_of_others() {
    let Some(nodes) = Nodes::new("policy-most-devices") else {
        return;
    };
    nodes.apply_dra();
    nodes.allow_all_of_status();
    let node = nodes.node(1);
    let data = json!({"text": "x".repeat(MAX_DATA)});
    let mut results = vec![result(&node, &share(0))];
    let mut others = Vec::new();
    for number in 1..MAX_DEVICES {
        let id = share(number);
        let mut other = result(&node, &id);
        other["driver"] = "other.example".into();
        results.push(other);
        others.push(
            json!({"driver": "other.example", "pool": node, "device": "eth1",
            "shareID": id, "data": data}),
        );
    }
    nodes.claim("most", &node, &json!(results));
    nodes.set_claim_status("most", &json!({"devices": others}));
    let own = nodes.server.bound_token("braid", "Node", &node);
    nodes.await_policy(&own, "most");
    for now in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"] {
        let applied = nodes.apply_claim(&own, "most", now).expect("a status");
        let devices = applied["status"]["devices"].as_array().expect("devices");
        assert_eq!(devices.len(), MAX_DEVICES);
        let mut devices = devices.iter();
        let ours = devices.find(|device| device["driver"] == "braid.dev");
        let ours = ours.expect("the own device");
        assert_eq!(ours["conditions"][0]["lastTransitionTime"], now);
    }
}
