use super::*;

const ALLOCATED: &str = r#"{
    "metadata": {"name": "storage", "namespace": "web", "uid": "0a-1"},
    "status": {
        "allocation": {"devices": {
            "results": [
                {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "0"},
                {"request": "a/fast", "driver": "braid.dev", "pool": "n1", "device": "eth1",
                 "shareID": "s1", "consumedCapacity": {"bandwidth": "200M"}},
                {"request": "b", "driver": "braid.dev", "pool": "n1", "device": "eth2-whole"}
            ],
            "config": [
                {"source": "FromClass", "requests": ["a"],
                 "opaque": {"driver": "braid.dev", "parameters": {"kind": "Attachment"}}},
                {"source": "FromClaim", "opaque": {"driver": "gpu.example.com", "parameters": {}}},
                {"source": "FromClaim", "opaque": {"driver": "braid.dev", "parameters": {"ips": []}}}
            ]
        }},
        "reservedFor": [
            {"resource": "pods", "name": "one", "uid": "u1"},
            {"apiGroup": "x.io", "resource": "pods", "name": "other", "uid": "u3"},
            {"resource": "pods", "name": "two", "uid": "u2"}
        ]
    }
}"#;

#[test]
fn claim_has_the_shares_and_parameters_of_this_driver() {
    let claim = Claim::parse(ALLOCATED.as_bytes()).expect("a claim");
    assert_eq!(
        (claim.name.to_string(), &*claim.uid),
        ("web/storage".to_owned(), "0a-1")
    );
    let fast = Share {
        request: "a/fast".to_owned(),
        pool: "n1".to_owned(),
        device: "eth1".to_owned(),
        share_id: Some("s1".to_owned()),
        bandwidth: Some(200_000_000),
    };
    let whole = Share {
        request: "b".to_owned(),
        device: "eth2-whole".to_owned(),
        share_id: None,
        bandwidth: None,
        ..fast.clone()
    };
    assert_eq!(fast.main_request(), "a");
    assert_eq!(claim.shares, [fast, whole]);
    let configs = claim.configs.iter();
    let configs: Vec<(bool, &[String])> = configs
        .map(|one| (one.is_of_class, &*one.requests))
        .collect();
    assert_eq!(configs, [(true, &["a".to_owned()][..]), (false, &[])]);
    let text = serde_json::to_string(&claim).expect("JSON");
    assert_eq!(
        serde_json::from_str::<Claim>(&text).expect("the claim"),
        claim
    );
}

#[test]
fn parameters_for_a_request_are_for_its_alternatives() {
    let config = |requests: &[&str]| Config {
        is_of_class: false,
        requests: requests.iter().map(ToString::to_string).collect(),
        parameters: Json::Null,
    };
    for (requests, request, expected) in [
        (&[][..], "a", true),
        (&["a"], "a", true),
        (&["a"], "a/fast", true),
        (&["a/fast"], "a/fast", true),
        (&["a/fast"], "a/slow", false),
        (&["a/fast"], "a", false),
        (&["b", "a"], "a", true),
        (&["b"], "a", false),
        (&["fast"], "a/fast", false),
    ] {
        assert_eq!(
            config(requests).is_for(request),
            expected,
            "{requests:?} {request}"
        );
    }
}

#[test]
fn claim_without_an_allocation_has_no_shares() {
    for status in ["", r#","status":{}"#, r#","status":{"allocation":null}"#] {
        let text = format!(r#"{{"metadata":{{"name":"a","namespace":"b","uid":"c"}}{status}}}"#);
        let claim = Claim::parse(text.as_bytes()).expect("a claim");
        assert!(claim.shares.is_empty() && claim.configs.is_empty() && claim.pods.is_empty());
    }
}

#[test]
fn claim_that_cannot_be_used_is_refused() {
    let good = ALLOCATED.replace('\n', "");
    let results = format!("\"results\": [{}", r#"{"driver":"x"},"#.repeat(62));
    for (from, to, message) in [
        (
            "\"0a-1\"",
            "\"../x\"",
            r#"claim web/storage: invalid uid "../x""#,
        ),
        (
            "\"storage\"",
            "\"a/b\"",
            r#"ResourceClaim "web/a/b": invalid name"#,
        ),
        (
            "\"200M\"",
            "\"200Mbit\"",
            r#"claim web/storage: results[1]: quantity "200Mbit": not a number with a suffix, as in 200M or 1Gi"#,
        ),
        (
            "\"200M\"",
            "\"0\"",
            r#"claim web/storage: results[1]: "bandwidth" is 0"#,
        ),
        (
            "\"device\": \"eth1\"",
            "\"device\": \"eth1\", \"adminAccess\": true",
            r#"claim web/storage: results[1]: "adminAccess": true: not supported"#,
        ),
        (
            "\"eth1\"",
            "\"\"",
            r#"claim web/storage: results[1]: "device": missing"#,
        ),
        (
            "\"results\": [",
            &results,
            r#"claim web/storage: "results": 65 items, more than 64"#,
        ),
    ] {
        let error = Claim::parse(good.replace(from, to).as_bytes()).expect_err(message);
        assert_eq!(error.msg, message);
    }
    for at in 0..good.len() {
        let _ = Claim::parse(&good.as_bytes()[..at]);
    }
}

#[test]
fn claim_is_for_the_pod_that_reserved_it_first() {
    let mut claim = Claim::parse(ALLOCATED.as_bytes()).expect("a claim");
    assert_eq!(claim.refuse_second("u1"), Ok(()));
    let error = claim.refuse_second("u2").expect_err("the second");
    assert_eq!(
        error.msg,
        "claim web/storage: pod one uses it, and a claim is for one pod"
    );
    claim.pods.clear();
    assert!(claim.refuse_second("u1").is_err());
}
