//! RBAC rights of the shipped role. braid uses each of them.

use super::devices::{claiming, taking};
use super::{NETWORKS, Node, Value, json};
use crate::audit;
use crate::kubelet::{Kubelet, Manner, pod as resources};

/// Rights of the role that only the agent uses. The check of networks in `tests/cluster` compares
/// them with its requests.
const OF_AGENT: [&str; 9] = [
    "list /nodes",
    "watch /nodes",
    "list networking.k8s.io/servicecidrs",
    "watch networking.k8s.io/servicecidrs",
    "list /pods",
    "watch /pods",
    "list k8s.cni.cncf.io/network-attachment-definitions",
    "watch k8s.cni.cncf.io/network-attachment-definitions",
    "watch k8s.cni.cncf.io/ipamclaims",
];
/// Right by which the agent adds to a warning that comes back. `tests/api/agent` uses it with an
/// account of its own.
const OF_WARNINGS: &str = "patch events.k8s.io/events";

/// Returns the configuration of a network with an IPAM that supports `IPAMClaim`.
fn claimable() -> Value {
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24"});
    json!({"cniVersion": "1.0.0", "name": "lan", "type": "bridge", "bridge": "br1", "ipam": ipam})
}

#[test]
fn each_right_of_the_role_is_used() {
    let Some(node) = Node::new("rights", &[("lan", claimable())]) else {
        return;
    };
    let spec = json!({"network": "lan", "interface": "net1"});
    let [api, kind] = ["k8s.cni.cncf.io/v1alpha1", "IPAMClaim"];
    node.world
        .create(json!({"apiVersion": api, "kind": kind, "metadata": {"name": "vm"}, "spec": spec}));
    let pod = node.pod("web", r#"[{"name":"lan","ipam-claim-reference":"vm"}]"#);
    pod.call.add().result();
    let invalid = node.annotated("invalid", &json!({NETWORKS: "lan@"}));
    invalid.call.add().refused(7, &["lan@"]);
    pod.call.del().ok();
    pod.call.gc(&[]).ok();
    // No `ResourceSlice` contains the device that the kubelet reports, so the network does not get
    // this device.
    taking(&node, "vf", "none.example/vf", &claimable());
    let _kubelet = Kubelet::start(
        vec![resources(
            "rights",
            "dynamic",
            &[],
            &[["none.example", "pool", "d1"]],
        )],
        Manner::default(),
    );
    let dynamic = claiming(&node, "dynamic", "vf");
    dynamic.call.add().result();
    dynamic.call.del().ok();
    let server = node.world.server;
    let mut of_calls = audit::granted(server).clone();
    of_calls.retain(|right| !OF_AGENT.contains(&right.as_str()));
    of_calls.remove(OF_WARNINGS);
    assert_eq!(server.audit().within("rights").asked(), of_calls);
    node.world
        .server
        .kubectl(&["delete", "ipamclaim", "vm", "-n", "rights"], None);
    pod.call.gc(&[]).ok();
    node.assert_nothing_left(&pod);
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
