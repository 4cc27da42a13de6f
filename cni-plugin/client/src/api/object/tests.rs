use super::*;
use braid_core::cni::trace::TraceId;

fn name() -> ObjectName {
    ObjectName {
        namespace: "a".into(),
        name: "b".into(),
    }
}

#[test]
fn claims_pod_and_conditions_are_read_and_written() {
    for owner in [json!({"name": "web"}), json!("web")] {
        let condition = json!({"type": "Other", "status": "True"});
        let body = json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"network": "n", "interface": "i"},
            "status": {"ips": ["10.0.0.9/24"], "ownerPod": owner, "conditions": [condition]}});
        let claim = braid_core::k8s::object::claim(&name(), body.to_string().as_bytes()).unwrap();
        let status =
            json!({"ips": ["10.0.0.9/24"], "conditions": [condition], "ownerPod": {"name": "web"}});
        assert_eq!(
            status_of_claim(&claim),
            json!({"metadata": {"resourceVersion": "7"}, "status": status})
        );
    }
}

#[test]
fn slice_devices_are_parsed_with_device_id_and_resource() {
    let attributes = json!({DEVICE_ID: {"string": "0000:18:02.1"}, RESOURCE: {"string": "a/vf"}, "other": {"int": 5}});
    let devices = json!([{"name": "d1", "attributes": attributes}, {"name": "card", "attributes": {DEVICE_ID: {"int": 1}}}]);
    let pool = json!({"name": "p", "generation": 3, "resourceSliceCount": 1});
    let body = json!({"metadata": {"continue": "x"}, "items": [{"spec": {"pool": pool, "devices": devices}},
        {"spec": {"pool": {"name": "q"}}}]});
    let (offered, next) = offered(body.to_string().as_bytes()).unwrap();
    let offered_as = |device: &str, id: &str, resource: &str| {
        let [pool, device, id, resource] = ["p", device, id, resource].map(String::from);
        Offered {
            pool,
            generation: 3,
            device,
            id,
            resource,
        }
    };
    assert_eq!(
        (offered, next.as_str()),
        (
            vec![
                offered_as("d1", "0000:18:02.1", "a/vf"),
                offered_as("card", "", "")
            ],
            "x"
        )
    );
}

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn long_message_is_truncated_at_a_character_boundary() {
    let message = format!("{}ä", "x".repeat(NOTE_MAX - 1));
    let told = Event {
        severity: Severity::Normal,
        reason: "R".into(),
        message,
        trace: TraceId::parse(TRACEPARENT),
    };
    let event = event(&name(), "u", &told, "node", Timestamp::UNIX_EPOCH);
    assert_eq!(event["note"].as_str().map(str::len), Some(NOTE_MAX - 1));
    let trace = &event["metadata"]["annotations"]["braid/trace-id"];
    assert_eq!(*trace, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(event["eventTime"], "1970-01-01T00:00:00.000000Z");
}

#[test]
fn event_name_has_the_pods_prefix_and_is_valid() {
    let long = format!("{}.b{}", "a".repeat(56), "c".repeat(190));
    assert_eq!(
        ["web-0", &long].map(event_name),
        ["web-0-".to_owned(), format!("{}-", "a".repeat(56))]
    );
}

#[test]
fn empty_list_has_null_items_and_missing_items_are_an_error() {
    let nothing =
        page(br#"{"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "1"}, "items": null}"#);
    assert_eq!(nothing.map(|page| page.uids).unwrap(), [""; 0]);
    assert!(page(br#"{"kind": "Status", "metadata": {}}"#).is_err());
}
