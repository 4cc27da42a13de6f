//! `IPAMClaim` objects on a real API server: addresses that outlive a pod.

use super::{Node, Pod, Value, bridged, calls, json, spy, uid};
use braid_core::k8s::DEFAULT_NETWORK;
use std::fs;

/// Folder with the leases of the network `lan1`.
const LEASES: &str = "/var/lib/cni/networks/lan1";

/// Creates an `IPAMClaim` that is owned by a virtual machine, with the finalizer of its controller.
pub(crate) fn claim(node: &Node, name: &str, network: &str) -> Value {
    let owner = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "vm-uid"});
    let metadata = json!({"name": name, "ownerReferences": [owner], "finalizers": ["kubevirt.io/persistent-ipam"]});
    let spec = json!({"network": network, "interface": "net1"});
    let (api, kind) = ("k8s.cni.cncf.io/v1alpha1", "IPAMClaim");
    node.world
        .create(json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}));
    node.world.get("ipamclaim", name)
}

pub(crate) fn refers_to(network: &str, claim: &str) -> String {
    json!([{"name": network, "ipam-claim-reference": claim}]).to_string()
}

/// Returns `<address> <first line of its lease file>` for each address that is leased to a claim.
fn held() -> Vec<String> {
    let names = fs::read_dir(LEASES)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut held: Vec<String> = names
        .filter(|name| name.parse::<std::net::IpAddr>().is_ok())
        .map(|name| {
            let text = fs::read_to_string(format!("{LEASES}/{name}")).expect("a lease");
            format!("{name} {}", text.lines().next().unwrap_or_default())
        })
        .filter(|line| line.contains("ipamclaim-"))
        .collect();
    held.sort();
    held
}

/// Detaches and deletes a pod, as the kubelet and the pod's owner would.
pub(crate) fn end(node: &Node, pod: &Pod) {
    pod.call.del().ok();
    node.world.sandbox.end(&pod.ns);
    let namespace = &node.world.namespace;
    node.world.server.kubectl(
        &[
            "delete",
            "pod",
            &pod.name,
            "-n",
            namespace,
            "--force",
            "--grace-period=0",
        ],
        None,
    );
}

/// Deletes a claim. Its controller takes the finalizer away.
pub(crate) fn delete(node: &Node, name: &str) {
    let namespace = &node.world.namespace;
    let of = ["ipamclaim", name, "-n", namespace];
    let kubectl = |verb: &str, more: &[&str]| {
        let arguments = [&[verb], &of[..], more].concat();
        node.world.server.kubectl(&arguments, None);
    };
    kubectl("delete", &["--wait=false"]);
    let no_finalizer = r#"{"metadata":{"finalizers":null}}"#;
    kubectl("patch", &["--type=merge", "-p", no_finalizer]);
}

// Requirements I1, I3, I5, I6, I7, S33.
#[test]
fn a_claims_addresses_stay_until_it_is_deleted() {
    let Some(node) = Node::new("kept", &[("lan", bridged(1))]) else {
        return;
    };
    let before = claim(&node, "vm-a.lan", "lan1");
    let holder = format!("10.1.0.2 ipamclaim-{}", uid(&before));
    let first = node.pod("first", &refers_to("lan", "vm-a.lan"));
    let result = first.call.add().result();
    assert_eq!(
        (first.ns.addrs("net1"), held()),
        (vec!["10.1.0.2/24".to_owned()], vec![holder.clone()])
    );
    first.call.check(&result).ok();
    let mut filled = node.world.get("ipamclaim", "vm-a.lan");
    let status = filled["status"].take();
    assert_eq!(
        filled["metadata"], before["metadata"],
        "owner and finalizer are its controller's"
    );
    assert_eq!(filled["spec"], before["spec"]);
    let condition = &status["conditions"][0];
    assert_eq!(
        (&status["ips"], &status["ownerPod"]),
        (&json!(["10.1.0.2/24"]), &json!({"name": "first"}))
    );
    let told = ["type", "status", "reason"].map(|key| condition[key].as_str().unwrap_or_default());
    assert_eq!(told, ["IPsAllocated", "True", "SuccessfulAllocation"]);
    let of_claims: Vec<String> = node
        .requests()
        .into_iter()
        .filter(|asked| asked.contains("ipamclaims"))
        .collect();
    assert_eq!(of_claims, ["get ipamclaims", "patch ipamclaims/status"]);
    // Other pods refer to the claim, while it is in use and afterwards.
    let second = node.pod("second", &refers_to("lan", "vm-a.lan"));
    second
        .call
        .add()
        .refused(11, &["claim kept/vm-a.lan: pod kept/first uses it"]);
    assert_eq!(second.ns.link_names(), [""; 0]);
    end(&node, &first);
    let other = node.pod("other", "lan");
    other.call.add().result();
    assert_eq!(other.ns.addrs("net1"), ["10.1.0.3/24"]);
    other.call.gc(&[("other", "eth0")]).ok();
    assert_eq!(held(), std::slice::from_ref(&holder), "the claim is there");
    second.call.add().result();
    assert_eq!(
        (second.ns.addrs("net1"), held()),
        (vec!["10.1.0.2/24".to_owned()], vec![holder.clone()])
    );
    let now = node.world.get("ipamclaim", "vm-a.lan")["status"].clone();
    assert_eq!(
        (&now["ownerPod"], &now["ips"]),
        (&json!({"name": "second"}), &json!(["10.1.0.2/24"]))
    );
    assert_eq!(
        now["conditions"], status["conditions"],
        "it was allocated once"
    );
    end(&node, &second);
    assert_eq!(held(), [holder]);
    delete(&node, "vm-a.lan");
    other.call.gc(&[("other", "eth0")]).ok();
    assert_eq!(held(), [""; 0]);
    other.call.del().ok();
    node.assert_nothing_left(&other);
}

// Requirement I1.
#[test]
fn a_full_range_reuses_addresses_of_deleted_claims_without_gc() {
    let config = json!({"cniVersion": "1.0.0", "name": "lan1", "type": "bridge", "bridge": "lan1",
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/30"}});
    let Some(node) = Node::new("full", &[("lan", config)]) else {
        return;
    };
    claim(&node, "vm", "lan1");
    let first = node.pod("first", &refers_to("lan", "vm"));
    first.call.add().result();
    end(&node, &first);
    let second = node.pod("second", "lan");
    let words = [
        "network full/lan: ",
        "no IP addresses available in range set",
    ];
    second.call.add().refused(999, &words);
    assert_eq!(
        (held().len(), second.ns.link_names()),
        (1, Vec::<String>::new()),
        "the claim is there"
    );
    delete(&node, "vm");
    second.call.add().result();
    assert_eq!(
        (second.ns.addrs("net1"), held()),
        (vec!["10.1.0.2/30".to_owned()], Vec::new())
    );
    second.call.del().ok();
    node.assert_nothing_left(&second);
}

// Requirement I7.
#[test]
fn a_claim_moves_with_its_virtual_machine() {
    let Some(node) = Node::new("moves", &[("lan", bridged(1))]) else {
        return;
    };
    claim(&node, "vm", "lan1");
    let networks = refers_to("lan", "vm");
    let of_vm = |more: &Value| {
        let mut annotations = json!({super::NETWORKS: networks, "kubevirt.io/domain": "vm"});
        annotations
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().cloned().unwrap_or_default());
        annotations
    };
    let source = node.annotated("source", &of_vm(&json!({})));
    source.call.add().result();
    // The virtual machine moves to another node, which has no lease.
    let target = node.annotated(
        "target",
        &of_vm(&json!({"kubevirt.io/migrationJobName": "job"})),
    );
    fs::rename("/run/braid", "/run/elsewhere").expect("another node's records");
    fs::remove_dir_all(LEASES).expect("another node's leases");
    target.call.add().result();
    assert_eq!(target.ns.addrs("net1"), ["10.1.0.2/24"]);
    assert_eq!(
        node.world.get("ipamclaim", "vm")["status"]["ownerPod"]["name"],
        "target"
    );
    target.call.del().ok();
}

// Requirements I2, I3, I4, S33.
#[test]
fn a_claim_belongs_to_one_secondary_network_that_keeps_leases() {
    let networks = [("lan", bridged(1)), ("spied", spy("spied", &json!({})))];
    let Some(node) = Node::new("of-one", &networks) else {
        return;
    };
    claim(&node, "vm", "lan1");
    claim(&node, "of-others", "blue");
    // A foreign plugin that does not support claims ignores the reference, and braid does not get
    // the claim.
    let pod = node.pod("ignores", &refers_to("spied", "none"));
    pod.call.add().result();
    assert!(
        !node
            .requests()
            .iter()
            .any(|asked| asked.contains("ipamclaims"))
    );
    assert_eq!(calls(), ["ADD spied net1 spy"]);
    pod.call.del().ok();
    let default =
        json!([{"name": "lan", "namespace": "of-one", "ipam-claim-reference": "vm"}]).to_string();
    let default = node.annotated("default", &json!({DEFAULT_NETWORK: default}));
    default
        .call
        .add()
        .refused(7, &["the default network does not support claims"]);
    for (name, networks, code, words) in [
        (
            "of-others",
            refers_to("lan", "of-others"),
            7,
            "it is for network \"blue\"",
        ),
        (
            "none",
            refers_to("lan", "none"),
            11,
            "IPAMClaim of-one/none does not exist",
        ),
    ] {
        let pod = node.pod(name, &networks);
        pod.call.add().refused(code, &[words]);
        node.assert_nothing_left(&pod);
    }
    assert_eq!(node.world.get("ipamclaim", "vm")["status"], Value::Null);
    // The CRD's schema requires both keys of the specification, and makes the status a subresource.
    for spec in [json!({"network": "lan"}), json!({"interface": "net1"})] {
        let object = json!({"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
            "metadata": {"name": "half", "namespace": "of-one"}, "spec": spec});
        let made = node
            .world
            .server
            .try_kubectl(&["create", "-f", "-"], Some(&object));
        assert!(
            String::from_utf8_lossy(&made.stderr).contains("equired"),
            "{made:?}"
        );
    }
    let may = |verb: &str, below: &str| {
        let own = [
            "--as=system:serviceaccount:kube-system:braid",
            &format!("--subresource={below}"),
        ];
        let question = ["auth", "can-i", verb, "ipamclaims.k8s.cni.cncf.io"];
        node.world
            .server
            .try_kubectl(&[&question[..], &own].concat(), None)
            .status
            .success()
    };
    assert!(may("get", "") && may("patch", "status") && !may("patch", "") && !may("update", ""));
}
