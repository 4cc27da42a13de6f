use super::*;
use crate::cni::FaultPlace;

/// Returns the findings in a document, each as `path: finding`.
fn found(text: &str) -> Vec<String> {
    found_with(text, Known::default())
}

fn found_with(text: &str, known: Known<'_>) -> Vec<String> {
    let document = Json::parse(text.as_bytes(), "test").expect("JSON");
    let told = |(_, finding): (String, Finding)| {
        let FaultPlace::Path(path) = &finding.place else {
            return finding.to_string();
        };
        let parts = path.iter().map(|part| match part {
            PathPart::Key(key) => key.clone(),
            PathPart::Index(index) => index.to_string(),
        });
        format!("{}: {finding}", parts.collect::<Vec<_>>().join("."))
    };
    objects(&document, known).into_iter().map(told).collect()
}

fn opaque(keys: &str) -> String {
    let head = r#""apiVersion":"braid.dev/v1alpha1","kind":"Attachment""#;
    format!(r#""opaque":{{"driver":"braid.dev","parameters":{{{head},{keys}}}}}"#)
}

/// Returns a claim with these lists.
fn claim(requests: &str, config: &str) -> String {
    let head = r#""apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim""#;
    format!(
        r#"{{{head},"metadata":{{"name":"a"}},"spec":{{"devices":{{"requests":[{requests}],"config":[{config}]}}}}}}"#
    )
}

fn exactly(class: &str, more: &str) -> String {
    format!(r#"{{"name":"nic","exactly":{{"deviceClassName":"{class}"{more}}}}}"#)
}

#[test]
fn faults_of_parameters_have_the_path_of_their_value() {
    let nic = exactly("braid.dev", "");
    for (keys, expected) in [
        (
            r#""interfce":"a""#,
            r#"interfce: error: interfce: "a": "interfce": "a": unknown key"#,
        ),
        (
            r#""network":{"master":"eth0"}"#,
            r#"network.master: error: master: "eth0": "network": "master": "eth0": the driver sets this key"#,
        ),
        (
            r#""ips":["192.0.2.5/24","x"]"#,
            r#"ips.1: error: ips: "x": "ips": "x" is not an address"#,
        ),
        (
            r#""network":{"type":"vlan","vlanId":5000,"ipam":{"type":"dhcp"}}"#,
            r#"network.vlanId: error: vlanId: 5000: claim default/a: request "nic": "vlanId": invalid VLAN ID 5000 (must be between 0 and 4094)"#,
        ),
        (
            r#""network":{"type":"vlan","vlanId":5}"#,
            r#"network: error: network: claim default/a: request "nic": "type": "vlan": it requires an "ipam" with a type, or "ips""#,
        ),
        (
            r#""interface":"eth0""#,
            r#"interface: error: interface: "eth0": claim default/a: request "nic": "interface": "eth0": the pod has it already"#,
        ),
    ] {
        let text = claim(&nic, &format!("{{{}}}", opaque(keys)));
        let expected = format!("spec.devices.config.0.opaque.parameters.{expected}");
        assert_eq!(found(&text), [expected]);
    }
}

#[test]
fn claim_without_a_fault_has_no_finding() {
    let data = format!("{{{}}}", opaque(r#""interface":"data0""#));
    let vlan = format!("{{{}}}", opaque(r#""network":{"type":"vlan","vlanId":5}"#));
    let nad = format!("{{{}}}", opaque(r#""nad":"rails/left""#));
    let alternatives = r#"{"name":"nic","firstAvailable":[{"name":"fast","deviceClassName":"braid.dev"},
        {"name":"slow","deviceClassName":"braid.dev","capacity":{"requests":{"bandwidth":"1G"}}}]}"#;
    for (requests, config) in [
        (exactly("braid.dev", ""), String::new()),
        (exactly("whole.braid.dev", ""), data.clone()),
        (alternatives.to_owned(), data),
        // The class may have the IPAM.
        (exactly("lan-100", ""), vlan),
        (exactly("braid.dev", ""), nad),
        (
            exactly("gpu.example.com", ""),
            r#"{"opaque":{"driver":"gpu.example.com","parameters":{"x":1}}}"#.to_owned(),
        ),
    ] {
        assert_eq!(
            found(&claim(&requests, &config)),
            [""; 0],
            "{requests} {config}"
        );
    }
}

#[test]
fn faults_of_requests_are_found() {
    let text = claim(
        &exactly(
            "braid.dev",
            r#","capacity":{"requests":{"bandwidth":"200Mbit"}}"#,
        ),
        "",
    );
    assert_eq!(
        found(&text),
        [
            r#"spec.devices.requests.0.exactly.capacity.requests.bandwidth: error: bandwidth: "200Mbit": quantity "200Mbit": not a number with a suffix, as in 200M or 1Gi"#
        ]
    );
    let data = format!("{{{}}}", opaque(r#""interface":"data0""#));
    let twice = found(&claim(&exactly("braid.dev", r#","count":2"#), &data));
    assert!(
        twice.len() == 1 && twice[0].ends_with(r#""data0": the pod has it already"#),
        "{twice:?}"
    );
    let wrong = found(&claim(r#"{"name":5}"#, ""));
    assert!(
        wrong.len() == 1 && wrong[0].starts_with("spec.devices: error"),
        "{wrong:?}"
    );
}

#[test]
fn class_may_have_more_than_a_claim() {
    let list = opaque(r#""network":{"plugins":[{"type":"bridge"},{"type":"tuning"}]}"#);
    let class = |config: &str| {
        format!(
            r#"{{"apiVersion":"resource.k8s.io/v1","kind":"DeviceClass","metadata":{{"name":"lan"}},"spec":{{"config":[{{{config}}}]}}}}"#
        )
    };
    assert_eq!(found(&class(&list)), [""; 0]);
    assert_eq!(
        found(&class(&opaque(
            r#""network":{"plugins":[{"master":"eth0"}]}"#
        ))),
        [
            r#"spec.config.0.opaque.parameters.network.plugins.0.master: error: master: "eth0": "network": plugins[0]: "master": "eth0": the driver sets this key"#
        ]
    );
    let text = claim(&exactly("braid.dev", ""), &format!("{{{list}}}"));
    assert_eq!(found(&text).len(), 1);
}

#[test]
fn claims_are_checked_with_the_parameters_of_their_class() {
    let class = |config: &str| {
        let text = format!(
            r#"{{"kind":"DeviceClass","metadata":{{"name":"lan"}},"spec":{{"config":[{{{}}}]}}}}"#,
            opaque(config)
        );
        Json::parse(text.as_bytes(), "test").expect("JSON")
    };
    let vlan = r#""network":{"type":"vlan","vlanId":100,"ipam":{"type":"dhcp"}}"#;
    let list = r#""network":{"plugins":[{"type":"macvlan"},{"type":"tuning"}]}"#;
    let device = r#""network":{"type":"host-device"}"#;
    let at = "spec.devices.config.0.opaque.parameters";
    for (of_class, of_claim, expected) in [
        (vlan, r#""network":{"vlanId":7}"#, ""),
        // The device may be a whole one.
        (device, r#""network":{"mtu":1400}"#, ""),
        (
            vlan,
            r#""network":{"vlanId":5000}"#,
            r#"network.vlanId: error: vlanId: 5000: claim default/a: request "nic": "vlanId": invalid VLAN ID 5000 (must be between 0 and 4094)"#,
        ),
        (
            vlan,
            r#""network":{"ipam":{}}"#,
            r#"network: error: network: claim default/a: request "nic": "type": "vlan": it requires an "ipam" with a type, or "ips""#,
        ),
    ] {
        let class = class(of_class);
        let known = Known {
            classes: &[&class],
            ..Known::default()
        };
        let text = claim(&exactly("lan", ""), &format!("{{{}}}", opaque(of_claim)));
        let expected = Some(expected).filter(|text| !text.is_empty());
        let expected = expected.map(|text| format!("{at}.{text}"));
        assert_eq!(found_with(&text, known), Vec::from_iter(expected));
    }
    let class = class(list);
    let known = Known {
        classes: &[&class],
        ..Known::default()
    };
    let text = claim(
        &exactly("lan", ""),
        &format!("{{{}}}", opaque(r#""network":{"mtu":1400}"#)),
    );
    let merged = found_with(&text, known);
    assert!(
        merged.len() == 1 && merged[0].contains("so no key of it can be changed"),
        "{merged:?}"
    );
}

#[test]
fn claims_are_checked_with_the_networks_that_they_name() {
    let nad = |config: &str| Nad {
        name: ObjectName {
            namespace: "rails".to_owned(),
            name: "left".to_owned(),
        },
        config: config.to_owned(),
        annotations: [].into(),
    };
    let config = format!("{{{}}}", opaque(r#""nad":"rails/left""#));
    let text = claim(&exactly("braid.dev", ""), &config);
    for (config, fault) in [
        (r#"{"cniVersion":"1.0.0","type":"macvlan"}"#, None),
        (
            r#"{"cniVersion":"1.0.0","type":"bridge"}"#,
            Some(r#""type": "bridge": not one of"#),
        ),
        (
            r#"{"cniVersion":"1.0.0","type":"host-device","device":"x"}"#,
            Some("the device is shared"),
        ),
        ("", None),
    ] {
        let nad = nad(config);
        let known = Known {
            nads: &[&nad],
            ..Known::default()
        };
        let found = found_with(&text, known);
        assert_eq!(found.len(), usize::from(fault.is_some()), "{found:?}");
        for (found, fault) in found.iter().zip(fault) {
            let start = "spec.devices.config.0.opaque.parameters.nad: error";
            assert!(found.starts_with(start) && found.contains(fault), "{found}");
        }
    }
}

#[test]
fn a_share_cannot_have_the_type_of_a_whole_device() {
    for (class, keys, is_fault) in [
        ("braid.dev", r#"{"type":"host-device"}"#, true),
        ("whole.braid.dev", r#"{"type":"host-device"}"#, false),
        ("braid.dev", r#"{"mode":"passthru"}"#, true),
        (
            "whole.braid.dev",
            r#"{"type":"macvlan","mode":"passthru"}"#,
            false,
        ),
    ] {
        let config = opaque(&format!(r#""network":{keys}"#));
        let found = found(&claim(&exactly(class, ""), &format!("{{{config}}}")));
        assert_eq!(
            found.len(),
            usize::from(is_fault),
            "{class} {keys} {found:?}"
        );
        assert!(
            found
                .iter()
                .all(|one| one.ends_with("the device is shared"))
        );
    }
}

#[test]
fn objects_in_lists_and_templates_are_found() {
    let data = format!("{{{}}}", opaque(r#""interface":"a/b""#));
    let claim = claim(&exactly("braid.dev", ""), &data);
    let template = claim
        .replace("\"ResourceClaim\"", "\"ResourceClaimTemplate\"")
        .replace("\"spec\":", "\"spec\":{\"spec\":")
        + "}";
    let list = format!(r#"{{"kind":"List","items":[{{"kind":"Pod"}},{claim},{template}]}}"#);
    let document = Json::parse(list.as_bytes(), "test").expect("JSON");
    let labels: Vec<String> = objects(&document, Known::default())
        .into_iter()
        .map(|one| one.0)
        .collect();
    assert_eq!(
        labels,
        [
            "resource-claim default/a",
            "resource-claim-template default/a"
        ]
    );
    let places = found(&list);
    assert!(
        places[1].starts_with("items.2.spec.spec.devices.config.0."),
        "{places:?}"
    );
    let other = claim.replace("resource.k8s.io/v1", "example.com/v1");
    assert_eq!(found(&other), [""; 0]);
}
