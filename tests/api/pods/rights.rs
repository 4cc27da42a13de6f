//! RBAC rights of the shipped roles. braid uses each of them.

use super::devices::{claiming, taking};
use super::{NETWORKS, Node, Pod, Value, World, json};
use crate::agent::{Agent, await_true, is_ready};
use crate::audit;
use crate::kubelet::{Kubelet, Manner, pod as resources};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// Request that needs no right, by which the agent tries the token of calls.
const WITHOUT_RIGHT: &str = "get /version";
/// Kubeconfig that the agent writes for calls.
const KUBECONFIG: &str = "/etc/cni/net.d/braid.d/kubeconfig";
/// Name of the node and of the Node object.
const NODE: &str = "node-1";

/// Returns the configuration of a network with an IPAM that supports `IPAMClaim`.
fn claimable() -> Value {
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24"});
    json!({"cniVersion": "1.0.0", "name": "lan", "type": "bridge", "bridge": "br1", "ipam": ipam})
}

/// Creates a Node object.
fn create_node(node: &Node, name: &str, range: &str, address: &str) {
    let spec = json!({"podCIDR": range, "podCIDRs": [range]});
    let server = node.world.server;
    let object =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
    server.kubectl(&["create", "-f", "-"], Some(&object));
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
    let patch = format!("--patch={addresses}");
    let arguments = ["patch", "node", name, "--subresource=status", &patch];
    server.kubectl(&arguments, None);
}

/// Starts the agent with the token of its pod, as the `DaemonSet` does.
fn start_agent(node: &Node) -> Agent {
    let world = &node.world;
    world
        .sandbox
        .outside("outside", "192.0.2.1/24", "192.0.2.2/24");
    fs::create_dir_all("/etc/cni/net.d").expect("a folder for the conflist");
    create_node(node, NODE, "10.131.1.0/24", "192.0.2.1");
    let token = world.server.agent_token(NODE);
    let kubeconfig = world.kubeconfig(&json!({"token": token}));
    let agent = Agent::start(&kubeconfig, NODE, &[]);
    await_true("readiness", is_ready);
    agent
}

/// Lets a Node with a range of its own come and go until the warning about it is an event that is
/// counted twice.
fn warn_again(node: &Node) {
    let server = node.world.server;
    let mut is_there = false;
    await_true("a warning that comes back", || {
        if is_there {
            server.kubectl(&["delete", "node", "rights-absurd"], None);
        } else {
            create_node(node, "rights-absurd", "192.0.2.0/28", "192.0.2.66");
        }
        is_there = !is_there;
        std::thread::sleep(Duration::from_millis(500));
        used(node).contains("patch events.k8s.io/events")
    });
    server.kubectl(
        &["delete", "node", "rights-absurd", "--ignore-not-found"],
        None,
    );
}

/// Returns the rights that the agent and the calls of the node have used so far.
fn used(node: &Node) -> BTreeSet<String> {
    node.world.server.audit().of_node(NODE).asked()
}

/// Creates a pod of the node, and the call with the credentials that the agent wrote.
fn pod(node: &Node, name: &str, networks: &str) -> Pod {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {NETWORKS: networks}},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "none"}]},
    });
    authorized(node.container(&node.world.create(object)))
}

fn authorized(mut pod: Pod) -> Pod {
    pod.call = pod.call.with("kubeconfig", KUBECONFIG);
    pod
}

#[test]
fn each_right_of_the_manifest_is_used_and_no_request_is_refused() {
    let Some(world) = World::guarded("rights") else {
        return;
    };
    let node = Node::of(world, &[("lan", claimable())]);
    let agent = start_agent(&node);
    let spec = json!({"network": "lan", "interface": "net1"});
    let [api, kind] = ["k8s.cni.cncf.io/v1alpha1", "IPAMClaim"];
    node.world
        .create(json!({"apiVersion": api, "kind": kind, "metadata": {"name": "vm"}, "spec": spec}));
    let served = pod(&node, "served", "lan");
    served.call.add().result();
    served.call.del().ok();
    warn_again(&node);
    agent.kill();
    let web = pod(
        &node,
        "web",
        r#"[{"name":"lan","ipam-claim-reference":"vm"}]"#,
    );
    web.call.add().result();
    let invalid = pod(&node, "invalid", "lan@");
    invalid.call.add().refused(7, &["lan@"]);
    web.call.del().ok();
    web.call.gc(&[]).ok();
    // No `ResourceSlice` contains the device that the kubelet reports, so the network does not get
    // this device.
    taking(&node, "vf", "none.example/vf", &claimable());
    let devices = [["none.example", "pool", "d1"]];
    let _kubelet = Kubelet::start(
        vec![resources("rights", "dynamic", &[], &devices)],
        Manner::default(),
    );
    let dynamic = authorized(claiming(&node, "dynamic", "vf"));
    dynamic.call.add().result();
    dynamic.call.del().ok();
    let server = node.world.server;
    let mut used = used(&node);
    used.remove(WITHOUT_RIGHT);
    assert_eq!(used, *audit::granted(server));
    let forbidden = server.audit().of_node(NODE).forbidden();
    assert_eq!(forbidden, [""; 0]);
    server.kubectl(&["delete", "ipamclaim", "vm", "-n", "rights"], None);
    web.call.gc(&[]).ok();
}

/// Returns the rules of Multus' `ClusterRole` from `deployments/multus-daemonset.yml` of v4.3.0.
fn of_multus() -> Value {
    json!([
        {"apiGroups": ["k8s.cni.cncf.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "update"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    ])
}

/// Creates a service account with Multus' rights. The node uses this account from now on.
fn as_multus(node: &Node, account: &str) {
    let server = node.world.server;
    server.kubectl(
        &["create", "serviceaccount", account, "-n", "kube-system"],
        None,
    );
    let [api, rbac] = ["rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"];
    let role = json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": account}, "rules": of_multus()});
    server.kubectl(&["create", "-f", "-"], Some(&role));
    let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": "kube-system"});
    let of = json!({"apiGroup": rbac, "kind": "ClusterRole", "name": account});
    let binding = json!({"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": account}, "roleRef": of, "subjects": [subject]});
    server.kubectl(&["create", "-f", "-"], Some(&binding));
    node.world
        .kubeconfig(&json!({"token": server.create_token(account)}));
}

#[test]
fn with_multus_role_a_status_update_changes_nothing_else_of_the_pod() {
    let Some(node) = Node::new("role-of-multus", &[("lan", claimable())]) else {
        return;
    };
    as_multus(&node, "multus");
    let pod = node.pod("web", "lan");
    let status = json!([{"op": "add", "path": "/status/message", "value": "kept"},
        {"op": "add", "path": "/status/podIP", "value": "10.0.0.2"}]);
    let patch = [
        "patch",
        "pod",
        "web",
        "-n",
        "role-of-multus",
        "--subresource=status",
        "--type=json",
        "-p",
    ];
    node.world
        .server
        .kubectl(&[&patch[..], &[&status.to_string()]].concat(), None);
    let mut expected = node.world.get("pod", "web");
    let added = pod.call.add();
    added.result();
    assert!(
        !added.stderr.contains("not written yet"),
        "{}",
        added.stderr
    );
    assert_eq!(node.entries(&pod), ["default eth0 true", "lan net1 false"]);
    let now = node.world.get("pod", "web");
    expected["metadata"]["annotations"][super::NETWORK_STATUS] =
        now["metadata"]["annotations"][super::NETWORK_STATUS].clone();
    assert_eq!(now, expected);
    let asked = node.requests_of("multus");
    let put = ["patch pods/status", "get pods", "update pods/status"];
    assert_eq!(
        asked,
        [
            &["get pods", "get network-attachment-definitions"][..],
            &put
        ]
        .concat()
    );
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}
