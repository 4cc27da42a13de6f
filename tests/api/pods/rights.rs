//! The rights of the shipped role, each of which the program uses.

use super::devices::{claiming, taking};
use super::{NETWORKS, Node, Value, json};
use crate::audit;
use crate::kubelet::{Kubelet, Manner, pod as resources};

/// A network whose addresses a claim may hold.
fn claimable() -> Value {
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24"});
    json!({"cniVersion": "1.0.0", "name": "lan", "type": "bridge", "bridge": "br1", "ipam": ipam})
}

#[test]
fn each_right_of_the_role_is_used_by_the_program() {
    let Some(node) = Node::new("rights", &[("lan", claimable())]) else { return };
    let spec = json!({"network": "lan", "interface": "net1"});
    let [api, kind] = ["k8s.cni.cncf.io/v1alpha1", "IPAMClaim"];
    node.world.create(json!({"apiVersion": api, "kind": kind, "metadata": {"name": "vm"}, "spec": spec}));
    let pod = node.pod("web", r#"[{"name":"lan","ipam-claim-reference":"vm"}]"#);
    pod.call.add().result();
    let invalid = node.annotated("invalid", &json!({NETWORKS: "lan@"}));
    invalid.call.add().refused(7, &["lan@"]);
    pod.call.del().ok();
    pod.call.gc(&[]).ok();
    // No slice knows the device that the kubelet gave it, so it is none of the network's.
    taking(&node, "vf", "none.example/vf", &claimable());
    let _kubelet =
        Kubelet::start(vec![resources("rights", "dynamic", &[], &[["none.example", "pool", "d1"]])], Manner::default());
    let dynamic = claiming(&node, "dynamic", "vf");
    dynamic.call.add().result();
    dynamic.call.del().ok();
    let server = node.world.server;
    assert_eq!(server.audit().within("rights").asked(), *audit::granted(server));
    node.world.server.kubectl(&["delete", "ipamclaim", "vm", "-n", "rights"], None);
    pod.call.gc(&[]).ok();
    node.assert_nothing_left(&pod);
}
