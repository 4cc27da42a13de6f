//! Admission policies of the manifest: braid's account acts for the node of its token only.

mod claim_status;
mod device_status;
mod slices;

use crate::json;
use crate::server::{self, Server};
use braid_core::k8s::NETWORK_STATUS;
use braid_testbed::chart;
use braid_tests::Value;
use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest time until the API server applies a policy.
const PATIENCE: Duration = Duration::from_mins(1);
const STATUS: &str = "ValidatingAdmissionPolicy 'braid-status' with binding 'braid-status'";
const TOKEN: &str = "ValidatingAdmissionPolicy 'braid-token' with binding 'braid-token'";
const OTHER_NODE: &str = "denied request: only pods of the own node";
const OTHER_FIELD: &str = "denied request: only the annotation k8s.v1.cni.cncf.io/network-status";
const FLANNEL: &str = "ValidatingAdmissionPolicy 'braid-flannel' with binding 'braid-flannel'";
const NOT_OWN: &str = "denied request: only the own Node";
const NOT_FLANNELS: &str = "denied request: only flannel's annotations";
const NODE: &str = "ValidatingAdmissionPolicy 'braid-node' with binding 'braid-node'";
const OTHER_STATUS: &str = "denied request: only the condition NetworkUnavailable";
const TOO_LONG: &str = "denied request: only tokens of at most 24 hours";
const CLAIMS: &str = "ValidatingAdmissionPolicy 'braid-claims' with binding 'braid-claims'";
const HAS_ADDRESSES: &str = "denied request: only addresses of a claim without addresses";
const UNBOUND: &str = "denied request: only tokens that are bound to the own Node";

/// Nodes `<test>-1` and `<test>-2`, and a namespace with a pod on each and one on none.
struct Nodes {
    server: &'static Server,
    test: &'static str,
}

impl Nodes {
    fn new(test: &'static str) -> Option<Self> {
        let server = server::guarded(&format!("policies::{test}"))?;
        let nodes = Self { server, test };
        let mut items =
            vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": test}})];
        for number in [1, 2] {
            let name = nodes.node(number);
            items.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        }
        items.push(nodes.pod("own", &json!({"nodeName": nodes.node(1)})));
        items.push(nodes.pod("other", &json!({"nodeName": nodes.node(2)})));
        items.push(nodes.pod("pending", &json!({})));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        server.kubectl(&["create", "-f", "-"], Some(&list));
        Some(nodes)
    }

    fn node(&self, number: u8) -> String {
        format!("{}-{number}", self.test)
    }

    fn pod(&self, name: &str, more: &Value) -> Value {
        let mut spec = json!({"containers": [{"name": "c", "image": "none"}]});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let metadata = json!({"name": name, "namespace": self.test, "annotations": {"kept": "1"}, "labels": {"app": "a"}});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    }

    /// Applies the manifest of resource claims, once for all tests.
    fn apply_dra(&self) {
        static APPLIED: OnceLock<()> = OnceLock::new();
        APPLIED.get_or_init(|| {
            let manifest = braid_testbed::sh::root().join("deploy/dra.yaml");
            let apply = ["apply", "-f", &manifest.to_string_lossy()];
            self.server.kubectl(&apply, None);
        });
    }

    /// Requests a token of an account with another token. Returns the token, or the refusal.
    fn request(
        &self,
        with: &str,
        account: &str,
        bound: Option<[&str; 2]>,
    ) -> Result<String, Refusal> {
        let post = ["POST", &path(account), "json"];
        accepted(self.server.request(with, post, &request(bound))).map(|made| token_of(&made))
    }

    /// Patches the status of a pod.
    fn patch(&self, with: &str, pod: &str, patch: &Value) -> Result<(), Refusal> {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/status", self.test);
        let patched = self
            .server
            .request(with, ["PATCH", &path, "json-patch+json"], patch);
        accepted(patched).map(drop)
    }

    /// Patches a Node.
    fn patch_node(&self, with: &str, number: u8, patch: &Value) -> Result<(), Refusal> {
        self.patch_path(with, &self.node(number), patch)
    }

    /// Patches the status of a Node.
    fn patch_node_status(&self, with: &str, number: u8, patch: &Value) -> Result<(), Refusal> {
        self.patch_path(with, &format!("{}/status", self.node(number)), patch)
    }

    fn patch_path(&self, with: &str, path: &str, patch: &Value) -> Result<(), Refusal> {
        let path = format!("/api/v1/nodes/{path}");
        let patched = self
            .server
            .request(with, ["PATCH", &path, "json-patch+json"], patch);
        accepted(patched).map(drop)
    }

    /// Waits until the API server applies a policy, which it does some time after its creation.
    #[track_caller]
    fn await_refusal<T>(&self, request: impl Fn(&Self) -> Result<T, Refusal>) {
        let start = Instant::now();
        while request(self).is_ok() {
            assert!(start.elapsed() < PATIENCE, "no policy refuses the request");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the API server grants a right, which it does some time after its creation.
    #[track_caller]
    fn await_right<T>(&self, request: impl Fn(&Self) -> Result<T, Refusal>) {
        let start = Instant::now();
        while let Err(refusal) = request(self) {
            assert!(start.elapsed() < PATIENCE, "refused: {refusal:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns a pod without fields that every write changes.
    fn get(&self, pod: &str) -> Value {
        let json = self
            .server
            .kubectl(&["get", "pod", pod, "-n", self.test, "-o", "json"], None);
        crate::steady(serde_json::from_str(&json).expect("kubectl prints JSON"))
    }
}

/// Status and message of a refused request.
type Refusal = (u16, String);

fn accepted((status, body): (u16, String)) -> Result<String, Refusal> {
    if status < 300 {
        return Ok(body);
    }
    let refusal: Value = serde_json::from_str(&body).expect("a Status");
    let message = refusal["message"].as_str().unwrap_or_default();
    Err((status, message.to_owned()))
}

fn path(account: &str) -> String {
    format!("/api/v1/namespaces/kube-system/serviceaccounts/{account}/token")
}

fn request(bound: Option<[&str; 2]>) -> Value {
    let mut spec = json!({"audiences": [], "expirationSeconds": 3600});
    if let Some([kind, name]) = bound {
        spec["boundObjectRef"] = json!({"apiVersion": "v1", "kind": kind, "name": name});
    }
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
}

fn token_of(made: &str) -> String {
    let made: Value = serde_json::from_str(made).expect("a TokenRequest");
    made["status"]["token"]
        .as_str()
        .expect("a token")
        .to_owned()
}

/// Returns a JSON Patch that sets `network-status`.
fn published() -> Value {
    json!([{"op": "add", "path": annotation(NETWORK_STATUS), "value": "[]"}])
}

fn annotation(key: &str) -> String {
    format!("/metadata/annotations/{}", key.replace('/', "~1"))
}

#[track_caller]
fn assert_refused<T: Debug>(outcome: &Result<T, Refusal>, policy: &str, why: &str) {
    let Err((422, message)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(message.ends_with(&format!("{policy} {why}")), "{message}");
}

#[test]
fn a_token_writes_only_the_network_status_of_pods_of_its_node() {
    let Some(nodes) = Nodes::new("policy-status") else {
        return;
    };
    let own = nodes.server.bound_token("braid", "Node", &nodes.node(1));
    nodes.await_refusal(|nodes| nodes.patch(&own, "other", &published()));
    for pod in ["other", "pending"] {
        let before = nodes.get(pod);
        assert_refused(&nodes.patch(&own, pod, &published()), STATUS, OTHER_NODE);
        assert_eq!(nodes.get(pod), before);
    }
    nodes
        .patch(&own, "own", &published())
        .expect("network-status of a pod of this node");
    let before = nodes.get("own");
    assert_eq!(before["metadata"]["annotations"][NETWORK_STATUS], "[]");
    let condition = json!({"type": "Ready", "status": "True"});
    for change in [
        json!({"op": "add", "path": annotation("k8s.v1.cni.cncf.io/networks"), "value": "lan"}),
        json!({"op": "replace", "path": annotation("kept"), "value": "2"}),
        json!({"op": "remove", "path": annotation("kept")}),
        json!({"op": "add", "path": "/metadata/labels/more", "value": "1"}),
        json!({"op": "replace", "path": "/metadata/labels/app", "value": "b"}),
        json!({"op": "remove", "path": "/metadata/labels"}),
        json!({"op": "add", "path": "/metadata/finalizers", "value": ["a.example/b"]}),
        json!({"op": "add", "path": "/status/conditions", "value": [condition]}),
        json!({"op": "add", "path": "/status/podIP", "value": "10.1.0.2"}),
        json!({"op": "replace", "path": "/status/phase", "value": "Failed"}),
    ] {
        // Together with the permitted annotation it is refused as well.
        for patch in [json!([change]), json!([published()[0], change])] {
            assert_refused(&nodes.patch(&own, "own", &patch), STATUS, OTHER_FIELD);
        }
    }
    assert_eq!(nodes.get("own"), before);
    let remove = json!([{"op": "remove", "path": annotation(NETWORK_STATUS)}]);
    nodes
        .patch(&own, "own", &remove)
        .expect("the annotation may go");
}

#[test]
fn a_token_without_a_node_writes_no_status() {
    let Some(nodes) = Nodes::new("policy-unbound") else {
        return;
    };
    let unbound = nodes.server.create_token("braid");
    nodes.await_refusal(|nodes| nodes.patch(&unbound, "own", &published()));
    for pod in ["own", "other", "pending"] {
        let outcome = nodes.patch(&unbound, pod, &published());
        assert_refused(&outcome, STATUS, OTHER_NODE);
    }
}

#[test]
fn a_token_obtains_only_tokens_of_its_account_that_are_bound_to_its_node() {
    let Some(nodes) = Nodes::new("policy-token") else {
        return;
    };
    // The account's pod on the node, as the DaemonSet has it.
    let mut pod = nodes.pod(
        "agent",
        &json!({"nodeName": nodes.node(1), "serviceAccountName": "braid"}),
    );
    pod["metadata"]["namespace"] = "kube-system".into();
    nodes.server.kubectl(&["create", "-f", "-"], Some(&pod));
    let [first, second] = [1, 2].map(|number| nodes.node(number));
    let of_pod = nodes.server.bound_token("braid", "Pod", "agent");
    nodes.await_refusal(|nodes| nodes.request(&of_pod, "braid", None));
    let of_node = nodes
        .request(&of_pod, "braid", Some(["Node", &first]))
        .expect("a token that is bound to the agent's Node");
    for with in [&of_pod, &of_node] {
        nodes
            .request(with, "braid", Some(["Node", &first]))
            .expect("a token that is bound to the own Node");
        for bound in [None, Some(["Node", &second]), Some(["Pod", "agent"])] {
            assert_refused(&nodes.request(with, "braid", bound), TOKEN, UNBOUND);
        }
        let outcome = nodes.request(with, "default", Some(["Node", &first]));
        assert!(outcome.is_err_and(|(status, _)| status == 403));
    }
    let mut long = request(Some(["Node", &first]));
    for (seconds, is_refused) in [(86_400, false), (86_401, true), (u32::MAX, true)] {
        long["spec"]["expirationSeconds"] = seconds.into();
        let post = ["POST", &path("braid"), "json"];
        let outcome = accepted(nodes.server.request(&of_node, post, &long));
        if is_refused {
            assert_refused(&outcome, TOKEN, TOO_LONG);
        } else {
            outcome.expect("a token of a day");
        }
    }
    let unbound = nodes.server.create_token("braid");
    for bound in [None, Some(["Node", &*first])] {
        assert_refused(&nodes.request(&unbound, "braid", bound), TOKEN, UNBOUND);
    }
    nodes.server.kubectl(
        &["delete", "pod", "agent", "-n", "kube-system", "--force"],
        None,
    );
}

#[test]
fn a_token_writes_only_flannels_annotations_of_its_node() {
    let Some(nodes) = Nodes::new("policy-flannel") else {
        return;
    };
    let manifest = braid_testbed::sh::root().join("deploy/flannel.yaml");
    let apply = ["apply", "-f", &manifest.to_string_lossy()];
    nodes.server.kubectl(&apply, None);
    for number in [1, 2] {
        let name = nodes.node(number);
        let annotate = ["annotate", "node", &name, "kept=1"];
        nodes.server.kubectl(&annotate, None);
    }
    let own = nodes.server.bound_token("braid", "Node", &nodes.node(1));
    let unbound = nodes.server.create_token("braid");
    let written = |key: &str| {
        let key = annotation(&format!("flannel.alpha.coreos.com/{key}"));
        json!({"op": "add", "path": key, "value": "x"})
    };
    let first = json!([written("public-ip")]);
    nodes.await_refusal(|nodes| nodes.patch_node(&own, 2, &first));
    assert_refused(&nodes.patch_node(&own, 2, &first), FLANNEL, NOT_OWN);
    assert_refused(&nodes.patch_node(&unbound, 1, &first), FLANNEL, NOT_OWN);
    for key in [
        "backend-type",
        "backend-data",
        "backend-v6-data",
        "public-ip",
        "public-ipv6",
        "kube-subnet-manager",
    ] {
        let patch = json!([written(key)]);
        nodes
            .patch_node(&own, 1, &patch)
            .expect("an annotation of flannel");
    }
    let taint = json!({"key": "a", "effect": "NoExecute"});
    for change in [
        written("public-ip-overwrite"),
        json!({"op": "replace", "path": annotation("kept"), "value": "2"}),
        json!({"op": "remove", "path": annotation("kept")}),
        json!({"op": "add", "path": "/metadata/labels", "value": {"role": "a"}}),
        json!({"op": "add", "path": "/metadata/finalizers", "value": ["a.example/b"]}),
        json!({"op": "add", "path": "/spec/taints", "value": [taint]}),
        json!({"op": "add", "path": "/spec/unschedulable", "value": true}),
        json!({"op": "add", "path": "/spec/podCIDR", "value": "10.1.0.0/24"}),
    ] {
        let outcome = nodes.patch_node(&own, 1, &json!([change]));
        assert!(outcome.is_err(), "{change}");
        if !change.to_string().contains("podCIDR") {
            assert_refused(&outcome, FLANNEL, NOT_FLANNELS);
        }
    }
}

#[test]
fn a_token_writes_only_the_condition_network_unavailable_of_its_node() {
    let Some(nodes) = Nodes::new("policy-node") else {
        return;
    };
    if let Some(why) = chart::missing() {
        braid_tests::feature::tell_skip("policies::policy-node", &why);
        return;
    }
    let text = chart::render(&["--set=node.clearNetworkUnavailable=true"]).expect("the chart");
    for object in chart::objects(&text).expect("objects") {
        if object["metadata"]["name"] == "braid-node" {
            nodes.server.kubectl(&["apply", "-f", "-"], Some(&object));
        }
    }
    let conditions = |unavailable: &str| {
        json!([
            {"type": "Ready", "status": "True"},
            {"type": "NetworkUnavailable", "status": unavailable},
        ])
    };
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
        "capacity": {"cpu": "2"},
        "conditions": conditions("True"),
    }});
    for number in [1, 2] {
        let (name, patch) = (nodes.node(number), format!("--patch={status}"));
        let patch = ["patch", "node", &name, "--subresource=status", &patch];
        nodes.server.kubectl(&patch, None);
    }
    let own = nodes.server.bound_token("braid", "Node", &nodes.node(1));
    let unbound = nodes.server.create_token("braid");
    let replace = |path: &str, value: &Value| json!({"op": "add", "path": path, "value": value});
    let clear = replace("/status/conditions", &conditions("False"));
    let first = json!([clear]);
    nodes.await_refusal(|nodes| nodes.patch_node_status(&own, 2, &first));
    let outcome = nodes.patch_node_status(&own, 2, &first);
    assert_refused(&outcome, NODE, NOT_OWN);
    let outcome = nodes.patch_node_status(&unbound, 1, &first);
    assert_refused(&outcome, NODE, NOT_OWN);
    nodes
        .patch_node_status(&own, 1, &first)
        .expect("the condition of the own Node");
    for change in [
        replace("/status/conditions/0/status", &json!("False")),
        json!({"op": "remove", "path": "/status/conditions/0"}),
        replace("/status/addresses/0/address", &json!("192.0.2.9")),
        json!({"op": "remove", "path": "/status/addresses"}),
        replace("/status/capacity/cpu", &json!("64")),
        replace("/status/allocatable", &json!({"cpu": "64"})),
        replace("/status/images", &json!([{"names": ["a"]}])),
        replace("/status/nodeInfo/machineID", &json!("a")),
        replace("/status/daemonEndpoints/kubeletEndpoint/Port", &json!(1)),
        replace("/metadata/annotations", &json!({"a": "1"})),
        replace("/metadata/labels", &json!({"role": "a"})),
        replace("/metadata/finalizers", &json!(["a.example/b"])),
    ] {
        for patch in [json!([change]), json!([clear, change])] {
            let outcome = nodes.patch_node_status(&own, 1, &patch);
            assert_refused(&outcome, NODE, OTHER_STATUS);
        }
    }
    // The right is for the status alone.
    let label = json!([replace("/metadata/labels", &json!({"role": "a"}))]);
    assert!(nodes.patch_node(&own, 1, &label).is_err());
}

#[test]
fn a_token_gives_addresses_only_to_a_claim_without_addresses() {
    let Some(nodes) = Nodes::new("policy-claims") else {
        return;
    };
    let claim = json!({
        "apiVersion": "k8s.cni.cncf.io/v1alpha1",
        "kind": "IPAMClaim",
        "metadata": {"name": "vm", "namespace": "policy-claims"},
        "spec": {"network": "lan", "interface": "net1"},
    });
    nodes.server.kubectl(&["create", "-f", "-"], Some(&claim));
    let own = nodes.server.bound_token("braid", "Node", &nodes.node(1));
    let path = "/apis/k8s.cni.cncf.io/v1alpha1/namespaces/policy-claims/ipamclaims/vm/status";
    let patch = |status: Value| {
        let patch = json!({"status": status});
        let form = ["PATCH", path, "merge-patch+json"];
        accepted(nodes.server.request(&own, form, &patch)).map(drop)
    };
    patch(json!({"ips": ["10.1.0.5/24"]})).expect("the first addresses");
    nodes.await_refusal(|_| patch(json!({"ips": ["10.1.0.6/24"]})).and(Ok(())));
    patch(json!({"ownerPod": {"name": "vm-2"}})).expect("another owner");
    for ips in [json!(["10.1.0.7/24"]), json!([]), Value::Null] {
        assert_refused(&patch(json!({"ips": ips})), CLAIMS, HAS_ADDRESSES);
    }
}

#[test]
fn the_policies_apply_to_no_other_account() {
    let Some(nodes) = Nodes::new("policy-others") else {
        return;
    };
    let unbound = nodes.server.create_token("braid");
    nodes.await_refusal(|nodes| nodes.patch(&unbound, "own", &published()));
    nodes.await_refusal(|nodes| nodes.request(&unbound, "braid", None));
    // An account with the same role and rights as braid's.
    let server = nodes.server;
    server.kubectl(
        &["create", "serviceaccount", "visitor", "-n", "kube-system"],
        None,
    );
    let subject = "--serviceaccount=kube-system:visitor";
    let role = [
        "create",
        "clusterrolebinding",
        "visitor",
        "--clusterrole=braid",
        subject,
    ];
    server.kubectl(&role, None);
    let role = [
        "create",
        "rolebinding",
        "visitor",
        "-n",
        "kube-system",
        "--role=braid",
        subject,
    ];
    server.kubectl(&role, None);
    let visitor = nodes.server.create_token("visitor");
    let patch = json!([
        published()[0],
        {"op": "add", "path": "/metadata/labels/more", "value": "1"},
        {"op": "add", "path": "/status/podIP", "value": "10.1.0.2"},
    ]);
    for pod in ["own", "other", "pending"] {
        nodes.patch(&visitor, pod, &patch).expect("no policy");
    }
    nodes.request(&visitor, "braid", None).expect("no policy");
}
