//! Pods whose annotations the runtime passes.

use super::{add, cluster, del, status};
use crate::attach::tests::assert_nothing_left;
use braid_core::k8s::NETWORKS;

/// Returns the keys of a configuration with which the runtime passes these annotations.
pub(super) fn passing(annotations: &str) -> String {
    format!(r#","runtimeConfig":{{"io.kubernetes.cri.pod-annotations":{annotations}}}"#)
}

#[test]
fn a_pod_that_requests_nothing_starts_without_the_api_and_its_status_is_owed() {
    let machine = cluster(Some("blue"));
    machine.cluster.borrow_mut().fails_at = Some(0);
    add(&machine, &passing(r#"{"a":"b"}"#)).expect("an ADD");
    // Only the status was to be written.
    assert_eq!(machine.cluster.borrow().asked, 1);
    del(&machine).expect("a DEL");
    assert_nothing_left(&machine, "at the end");
}

#[test]
fn passed_annotations_select_networks_and_the_pod_is_not_asked_for() {
    let machine = cluster(None);
    let annotations = format!(r#"{{"{NETWORKS}":"blue"}}"#);
    add(&machine, &passing(&annotations)).expect("an ADD");
    assert_eq!(
        status(&machine),
        ["default eth0 true", "ns/blue net1 false"]
    );
    assert_eq!(machine.cluster.borrow().asked, 2);
    del(&machine).expect("a DEL");
    assert_nothing_left(&machine, "at the end");
}

#[test]
fn an_invalid_passed_annotation_is_refused() {
    let machine = cluster(None);
    let annotations = format!(r#"{{"{NETWORKS}":"[{{"}}"#);
    let err = add(&machine, &passing(&annotations)).expect_err("invalid");
    assert!(err.to_string().contains(NETWORKS), "{err}");
    assert_nothing_left(&machine, "at the end");
}
