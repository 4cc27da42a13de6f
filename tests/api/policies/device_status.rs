//! Status of claimed devices: a token writes it for claims that are allocated on its node, and nothing else of
//! a claim.

use super::{Nodes, Refusal, accepted};
use crate::json;
use braid_tests::Value;

const SHARE: &str = "aed5bbdc-6a0b-4a0a-8e3e-0f1f0c0a0b0c";
/// Status for a change that needs the right to a driver's devices: the API server calls it invalid.
const INVALID: u16 = 422;

impl Nodes {
    /// Creates a claim with a device of braid that is allocated on this node.
    fn allocated(&self, name: &str, node: &str) {
        self.claim(name, node, &json!([result(node, SHARE)]));
    }

    /// Creates a claim with these results of an allocation on the node.
    pub(super) fn claim(&self, name: &str, node: &str, results: &Value) {
        let exactly = json!({"deviceClassName": "braid.dev"});
        let devices = json!({"requests": [{"name": "nic", "exactly": exactly}]});
        let metadata = json!({"name": name, "namespace": self.test});
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": metadata, "spec": {"devices": devices}});
        self.server.kubectl(&["create", "-f", "-"], Some(&claim));
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let selector = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        let allocation = json!({"devices": {"results": results}, "nodeSelector": selector});
        self.set_claim_status(name, &json!({"allocation": allocation}));
    }

    /// Merges these keys into the status of a claim, as administrator.
    pub(super) fn set_claim_status(&self, name: &str, status: &Value) {
        let status = json!({"status": status}).to_string();
        let patch = ["patch", "resourceclaim", name, "-n", self.test];
        let more = ["--subresource=status", "--type=merge", "-p", &status];
        self.server.kubectl(&[&patch[..], &more].concat(), None);
    }

    pub(super) fn patch_claim(
        &self,
        with: &str,
        (name, below): (&str, &str),
        patch: &Value,
    ) -> Result<(), Refusal> {
        let path = "/apis/resource.k8s.io/v1/namespaces";
        let path = format!("{path}/{}/resourceclaims/{name}{below}", self.test);
        let request = ["PATCH", &path, "merge-patch+json"];
        accepted(self.server.request(with, request, patch)).map(drop)
    }
}

/// Returns a result of an allocation: a share of `eth1` of the node.
pub(super) fn result(node: &str, share: &str) -> Value {
    json!({"request": "nic", "driver": "braid.dev", "pool": node, "device": "eth1",
        "shareID": share, "consumedCapacity": {"bandwidth": "1M"}})
}

fn device(node: &str) -> Value {
    let network = json!({"interfaceName": "data0", "ips": ["192.0.2.5/24"]});
    let device = json!({"driver": "braid.dev", "pool": node, "device": "eth1", "shareID": SHARE,
        "networkData": network});
    json!({"status": {"devices": [device]}})
}

#[test]
fn a_token_writes_only_the_devices_of_claims_on_its_node() {
    let Some(nodes) = Nodes::new("policy-devices") else {
        return;
    };
    nodes.apply_dra();
    let [first, second] = [1, 2].map(|number| nodes.node(number));
    nodes.allocated("own", &first);
    nodes.allocated("other", &second);
    let own = nodes.server.bound_token("braid", "Node", &first);
    let unbound = nodes.server.create_token("braid");
    let patch = |with: &str, claim: &str, of: &str| {
        nodes.patch_claim(with, (claim, "/status"), &device(of))
    };
    // The API server sees a role a moment after its creation.
    nodes.await_right(|_| patch(&own, "own", &first));
    for (with, claim, of) in [(&own, "other", &second), (&unbound, "own", &first)] {
        // Another device than before, or nothing would change.
        let mut other = device(of);
        other["status"]["devices"][0]["networkData"]["interfaceName"] = "data1".into();
        let refused = nodes.patch_claim(with, (claim, "/status"), &other);
        let (status, message) = refused.expect_err(claim);
        assert_eq!(status, INVALID, "{message}");
        assert!(message.contains("resourceclaims/driver"), "{message}");
    }
    let reserved = json!([{"resource": "pods", "name": "own", "uid": "u"}]);
    let patch = json!({"status": {"reservedFor": reserved}});
    let refused = nodes.patch_claim(&own, ("own", "/status"), &patch);
    refused.expect_err("a reservation");
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let refused = nodes.patch_claim(&own, ("own", ""), &patch);
    assert_eq!(refused.expect_err("a label").0, 403);
}
