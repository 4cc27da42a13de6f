//! The rights that are shipped, held against what the API server has seen.

use crate::{World, json, uid};
use braid_core::k8s::source::{Event, Severity, Source};
use braid_tests::Value;
use std::collections::BTreeSet;

/// `<verb> <group>/<resource>` of what braid's account has asked for so far, in any test.
fn asked(log: &[Value]) -> BTreeSet<String> {
    let own = log.iter().filter(|event| event["user"]["username"] == "system:serviceaccount:kube-system:braid");
    own.map(right).collect()
}

/// What of all that was asked for the server did not allow.
fn forbidden(log: &[Value]) -> Vec<String> {
    let forbidden = log.iter().filter(|event| event["annotations"]["authorization.k8s.io/decision"] == "forbid");
    let own = forbidden.filter(|event| event["user"]["username"] == "system:serviceaccount:kube-system:braid");
    own.map(right).collect()
}

fn right(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    if object["resource"].is_null() {
        return format!("{} {}", text(&event["verb"]), text(&event["requestURI"]));
    }
    let (group, resource, below) = (text(&object["apiGroup"]), text(&object["resource"]), text(&object["subresource"]));
    let below = if below.is_empty() { below } else { format!("/{below}") };
    format!("{} {group}/{resource}{below}", text(&event["verb"]))
}

/// The same of the role.
fn granted(role: &Value) -> BTreeSet<String> {
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for verb in list(&rule["verbs"]) {
            for group in list(&rule["apiGroups"]) {
                rights.extend(list(&rule["resources"]).iter().map(|resource| format!("{verb} {group}/{resource}")));
            }
        }
    }
    rights
}

#[test]
fn each_right_of_the_role_is_used_and_no_other() {
    let Some(world) = World::new("audit") else { return };
    let pod = world.create_pod("web", &json!({}));
    world.create_nad("lan", &json!({"config": "{}"}));
    let spec = json!({"network": "lan", "interface": "net1"});
    world.create(
        json!({"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": {"name": "vm"}, "spec": spec}),
    );
    let mut source = world.source();
    source.pod(&world.name("web"), &[world.name("lan")]).expect("a pod");
    source.annotate(&world.name("web"), uid(&pod), braid_core::k8s::NETWORK_STATUS, "[]").expect("annotated");
    let event = Event { severity: Severity::Normal, reason: "Test", message: "m".into() };
    source.tell(&world.name("web"), uid(&pod), &event).expect("told");
    let claim = source.claim(&world.name("vm")).expect("a claim");
    source.fill_claim(&claim, &[]).expect("filled");
    assert!(source.claim_uids().expect("all claims").contains(&claim.uid));
    let role = world.server.kubectl(&["get", "clusterrole", "braid", "-o", "json"], None);
    let role = serde_json::from_str(&role).expect("kubectl prints JSON");
    let log = world.server.audit();
    assert_eq!(asked(&log), granted(&role));
    assert_eq!(forbidden(&log), [""; 0]);
}
