use super::*;
use serde_json::json;

fn name() -> ObjectName {
    ObjectName {
        namespace: "a".into(),
        name: "b".into(),
    }
}

#[test]
fn pod_is_parsed_with_annotations_and_all_claims() {
    let body = json!({
        "metadata": {"uid": "u", "annotations": {"k": "v"}, "managedFields": [{}]},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c"}],
            "resourceClaims": [{"name": "own", "resourceClaimName": "gpu"}, {"name": "t", "resourceClaimTemplateName": "x"}],
        },
        "status": {
            "phase": "Pending",
            "resourceClaimStatuses": [{"name": "t", "resourceClaimName": "b-t-x7"}, {"name": "none"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "b-extended", "requestMappings": []},
        },
    });
    let expected = Pod {
        name: name(),
        uid: "u".into(),
        annotations: [("k".to_owned(), "v".to_owned())].into(),
        resource_claims: ["b-extended", "b-t-x7", "gpu"].map(String::from).into(),
        node: "n1".into(),
        is_over: false,
    };
    assert_eq!(pod(&name(), body.to_string().as_bytes()).unwrap(), expected);
    let bare = pod(&name(), br#"{"metadata": {"uid": "u"}, "spec": {}}"#).unwrap();
    assert_eq!((bare.annotations.len(), bare.resource_claims.len()), (0, 0));
    let over = pod(
        &name(),
        br#"{"metadata": {"uid": "u"}, "status": {"phase": "Failed"}}"#,
    )
    .unwrap();
    assert!(over.is_over && !bare.is_over);
}

#[test]
fn nad_without_a_configuration_is_valid() {
    for body in [r#"{"metadata": {}}"#, r#"{"metadata": {}, "spec": {}}"#] {
        assert_eq!(nad(&name(), body.as_bytes()).unwrap().config, "");
    }
}

#[test]
fn a_claim_needs_network_and_interface_and_may_have_no_status() {
    let body = br#"{"metadata": {"uid": "u"}, "spec": {"network": "n", "interface": "net1"}}"#;
    assert_eq!(claim(&name(), body).unwrap().ips, [""; 0]);
    assert!(claim(&name(), br#"{"metadata": {"uid": "u"}, "spec": {}}"#).is_err());
}
