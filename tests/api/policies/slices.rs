//! Slices of devices: a token writes those of its node.

use super::{Nodes, Refusal, accepted, assert_refused};
use crate::json;
use braid_tests::Value;

const SLICES: &str = "ValidatingAdmissionPolicy 'braid-dra' with binding 'braid-dra'";
const OTHERS: &str = "denied request: only slices of the own node";
const OTHER_POOL: &str = "denied request: only the driver braid.dev, and the pool of the own node";
const PATH: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// Returns an empty slice of a node.
fn slice(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "braid.dev",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        },
    })
}

impl Nodes {
    fn send(&self, with: &str, method: &str, name: &str, body: &Value) -> Result<Value, Refusal> {
        let path = if name.is_empty() {
            PATH.to_owned()
        } else {
            format!("{PATH}/{name}")
        };
        let answer = self.server.request(with, [method, &path, "json"], body);
        let body = accepted(answer)?;
        Ok(serde_json::from_str(&body).expect("JSON"))
    }
}

#[test]
fn a_token_writes_only_slices_of_its_node() {
    let Some(nodes) = Nodes::new("policy-slices") else {
        return;
    };
    nodes.apply_dra();
    let [first, second] = [1, 2].map(|number| nodes.node(number));
    let own = nodes.server.bound_token("braid", "Node", &first);
    let unbound = nodes.server.create_token("braid");
    let foreign = slice("policy-foreign", &second);
    nodes.await_refusal(|nodes| {
        // Without the policy, the slice is created.
        let delete = [
            "delete",
            "resourceslice",
            "policy-foreign",
            "--ignore-not-found",
        ];
        nodes.server.kubectl(&delete, None);
        nodes.send(&own, "POST", "", &foreign)
    });
    assert_refused(&nodes.send(&own, "POST", "", &foreign), SLICES, OTHERS);
    let mut ours = slice("policy-own", &first);
    assert_refused(&nodes.send(&unbound, "POST", "", &ours), SLICES, OTHERS);
    for (path, value) in [
        ("/spec/pool/name", &*second),
        ("/spec/driver", "other.example"),
    ] {
        let mut wrong = ours.clone();
        *wrong.pointer_mut(path).expect("a field") = value.into();
        assert_refused(&nodes.send(&own, "POST", "", &wrong), SLICES, OTHER_POOL);
    }
    ours = nodes.send(&own, "POST", "", &ours).expect("a slice");
    ours["spec"]["pool"]["generation"] = 2.into();
    nodes
        .send(&own, "PUT", "policy-own", &ours)
        .expect("an update");
    // The slice of another node, by the administrator.
    nodes.server.kubectl(&["create", "-f", "-"], Some(&foreign));
    let delete = nodes.send(&own, "DELETE", "policy-foreign", &json!({}));
    assert_refused(&delete, SLICES, OTHERS);
    nodes
        .send(&own, "DELETE", "policy-own", &json!({}))
        .expect("the own slice");
    let delete = ["delete", "resourceslice", "policy-foreign"];
    nodes.server.kubectl(&delete, None);
}
