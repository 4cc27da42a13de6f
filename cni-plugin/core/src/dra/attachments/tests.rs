use super::*;
use crate::dra::claim::Config;
use crate::dra::shared_parent::ParentUse;
use crate::k8s::network::Network;
use crate::k8s::select;

fn link(name: &str) -> IfName {
    IfName::parse(name).expect("a name")
}

fn parameters(keys: &str) -> Json {
    let text = format!(r#"{{"apiVersion":"braid.dev/v1alpha1","kind":"Attachment"{keys}}}"#);
    Json::parse(text.as_bytes(), "test").expect("JSON")
}

/// Returns a claim with a request for each of `devices`. `keys` begins with a comma.
fn claim(name: &str, devices: &[&str], is_of_class: bool, keys: &str) -> Claim {
    let share = |(number, device): (usize, &&str)| Share {
        request: format!("r{number}"),
        pool: "n1".to_owned(),
        device: (*device).to_owned(),
        share_id: Some("s".to_owned()),
        bandwidth: (!device.ends_with("-whole")).then_some(200_000_000),
    };
    Claim {
        name: ObjectName {
            namespace: "web".to_owned(),
            name: name.to_owned(),
        },
        uid: name.to_owned(),
        shares: devices.iter().enumerate().map(share).collect(),
        configs: vec![Config {
            is_of_class,
            requests: Vec::new(),
            parameters: parameters(keys),
        }],
        pods: Vec::new(),
    }
}

fn attachments(claims: &[Claim]) -> Result<Vec<Attachment>, Error> {
    let links = [link("eth1"), link("eth2")];
    of_claims(claims, |share| {
        let (link, form) = crate::dra::device::link(&share.device, &links)?;
        Some((link.clone(), form))
    })
}

/// Returns the network of a claim for `device`.
fn found(
    device: &str,
    (is_of_class, keys): (bool, &str),
    nads: &[Nad],
) -> Result<(Choice, Found), Error> {
    let claims = [claim("storage", &[device], is_of_class, keys)];
    let on_disk = |name: &str| Err(Error::config(format!("no file of {name}")));
    attachments(&claims)?[0].network(nads, on_disk)
}

fn message(device: &str, from: (bool, &str), nads: &[Nad]) -> String {
    let error = found(device, from, nads).expect_err(from.1);
    let start = r#"claim web/storage: request "r0": "#;
    error
        .msg
        .strip_prefix(start)
        .unwrap_or(&error.msg)
        .to_owned()
}

/// Returns the configurations of the plugins.
fn plugins_of(device: &str, from: (bool, &str), nads: &[Nad]) -> Vec<String> {
    let (_, found) = found(device, from, nads).expect(from.1);
    let plugins = found.definition.plugins().iter();
    plugins
        .map(|plugin| plugin.clone().sorted().to_string())
        .collect()
}

fn nad(name: &str, config: &str) -> Nad {
    Nad {
        name: ObjectName {
            namespace: "web".to_owned(),
            name: name.to_owned(),
        },
        config: config.to_owned(),
        annotations: [(crate::k8s::RESOURCE_NAME.to_owned(), "a/vf".to_owned())].into(),
    }
}

const LIMIT: &str = r#"{"capabilities":{"bandwidth":true},"type":"bandwidth"}"#;

#[test]
fn network_has_the_link_and_the_limit() {
    for (device, keys, expected) in [
        (
            "eth1",
            "",
            r#"{"cniVersion":"1.0.0","master":"eth1","name":"braid.dev-eth1","type":"macvlan"}"#,
        ),
        (
            "eth1",
            r#","network":{"type":"vlan","vlanId":7,"ipam":{"type":"dhcp"}}"#,
            r#"{"cniVersion":"1.0.0","ipam":{"type":"dhcp"},"master":"eth1","name":"braid.dev-eth1.7","type":"vlan","vlanId":7}"#,
        ),
        (
            "eth1",
            r#","mac":"02:00:00:00:00:01","ips":["192.0.2.5/24"]"#,
            r#"{"capabilities":{"ips":true,"mac":true},"cniVersion":"1.0.0","ipam":{"type":"static"},"master":"eth1","name":"braid.dev-eth1","type":"macvlan"}"#,
        ),
    ] {
        assert_eq!(plugins_of(device, (false, keys), &[]), [expected, LIMIT]);
    }
    assert_eq!(
        plugins_of("eth2-whole", (false, ""), &[]),
        [r#"{"cniVersion":"1.0.0","device":"eth2","name":"braid.dev-eth2","type":"host-device"}"#]
    );
}

#[test]
fn network_of_a_nad_is_on_the_link_of_the_device() {
    let nads = [
        nad(
            "left",
            r#"{"cniVersion":"0.4.0","plugins":[
                {"type":"ipvlan","master":"eth0","linkInContainer":true,"ipam":{"type":"dhcp"}},
                {"type":"bandwidth"},{"type":"tuning"}]}"#,
        ),
        nad("right", r#"{"type":"bridge"}"#),
        nad(
            "limited",
            r#"{"plugins":[{"type":"macvlan"},{"type":"bandwidth","ingressRate":9}]}"#,
        ),
        nad(
            "whole",
            r#"{"type":"host-device","hwaddr":"02:00:00:00:00:01"}"#,
        ),
    ];
    let left = (false, r#","nad":"left""#);
    assert_eq!(
        plugins_of("eth1", left, &nads),
        [
            r#"{"ipam":{"type":"dhcp"},"master":"eth1","type":"ipvlan"}"#,
            LIMIT,
            r#"{"type":"tuning"}"#,
        ]
    );
    let (choice, found) = found("eth1", left, &nads).expect("a network");
    assert_eq!(choice.origin, Origin::Nad(nads[0].name.clone()));
    assert_eq!(
        (found.object, found.resource),
        (Some(nads[0].name.clone()), None)
    );
    let plugins = plugins_of("eth1-whole", (false, r#","nad":"whole""#), &nads);
    assert_eq!(
        plugins,
        [r#"{"device":"eth1","name":"whole","type":"host-device"}"#]
    );
    let right = r#","nad":"right""#;
    assert_eq!(
        message("eth1", (false, right), &nads),
        r#"network web/right: "type": "bridge": not one of macvlan, ipvlan, vlan, host-device; a DeviceClass may have other types"#
    );
    assert_eq!(plugins_of("eth1", (true, right), &nads).len(), 2);
    for (keys, expected) in [
        (
            r#","nad":"limited""#,
            r#""ingressRate": the network has its own limit, but the claim's applies"#,
        ),
        (
            r#","nad":"other/left""#,
            "network other/left: there is no such NetworkAttachmentDefinition",
        ),
    ] {
        assert_eq!(message("eth1", (false, keys), &nads), expected);
    }
}

#[test]
fn network_that_an_add_would_refuse_is_refused() {
    for (device, keys, expected) in [
        (
            "eth1",
            r#","network":{"type":"host-device"}"#,
            r#""type": "host-device": the device is shared"#,
        ),
        (
            "eth1",
            r#","network":{"mode":"passthru"}"#,
            r#""mode": "passthru": the device is shared"#,
        ),
        (
            "eth1",
            r#","network":{"type":"vlan","vlanId":7}"#,
            r#""type": "vlan": it requires an "ipam" with a type, or "ips""#,
        ),
        (
            "eth1",
            r#","network":{"type":"vlan","vlanId":5000},"ips":["192.0.2.5/24"]"#,
            r#""vlanId": invalid VLAN ID 5000 (must be between 0 and 4094)"#,
        ),
        (
            "eth1",
            r#","network":{"type":"ipvlan"}"#,
            r#""type": "ipvlan": it requires an "ipam" with a type, or "ips""#,
        ),
        (
            "eth1",
            r#","network":{"type":"ipvlan","mode":"l3s"},"ips":["192.0.2.5/24"]"#,
            r#""mode": "l3s": its rate can't be limited; use mode l2 or l3"#,
        ),
        (
            "eth1",
            r#","network":{"type":"ipvlan"},"ips":["192.0.2.5/24"],"mac":"02:00:00:00:00:01""#,
            r#""mac": no plugin of the network has the capability "mac""#,
        ),
        (
            "eth1",
            r#","ips":["192.0.2.5"]"#,
            r#""ips": "192.0.2.5" needs a prefix length, as in 192.0.2.5/24"#,
        ),
        (
            "eth1",
            r#","network":{"ipam":{"type":"host-local","subnet":"x"}}"#,
            r#"ipam: "subnet": invalid CIDR address: "x""#,
        ),
        ("eth9", "", r#"device "eth9": this node has no such link"#),
    ] {
        assert_eq!(message(device, (false, keys), &[]), expected);
    }
}

/// Returns the networks of the claims, beside a default network and one in an annotation.
fn networks(claims: &[Claim], is_strict: bool) -> Result<Vec<Network>, Error> {
    let definition = |text: &str| {
        let json = Json::parse(text.as_bytes(), "test").expect("JSON");
        Found::of(Definition::parse(json, "n").expect("a definition"))
    };
    let default = Choice {
        is_default: true,
        ..Choice::of_all(Origin::Named("n".to_owned()))
    };
    let mut all = vec![
        (default, definition(r#"{"type":"ptp"}"#)),
        (
            Choice::of_all(Origin::Named("m".to_owned())),
            definition(r#"{"type":"dummy"}"#),
        ),
    ];
    for attachment in attachments(claims)? {
        all.push(attachment.network(&[], |_| Err(Error::config("no file")))?);
    }
    let rules = Rules {
        is_strict,
        built_in: BUILT_IN,
    };
    select::networks(all, "web", &link("eth0"), None, rules)
}

#[test]
fn interfaces_are_numbered_after_the_networks_of_annotations() {
    let claims = [
        claim("a", &["eth1", "eth2"], false, ""),
        claim("b", &["eth1"], false, r#","interface":"data0""#),
        claim("c", &["eth1"], false, ""),
    ];
    for is_strict in [false, true] {
        let networks = networks(&claims, is_strict).expect("networks");
        let names: Vec<&str> = networks.iter().map(|one| one.ifname.as_str()).collect();
        assert_eq!(names, ["eth0", "net1", "net2", "net3", "data0", "net5"]);
    }
}

#[test]
fn parameters_need_no_capabilities_where_annotations_do() {
    let keys = r#","network":{"type":"foreign","ipam":{"type":"other"}},"mac":"02:00:00:00:00:01","ips":["192.0.2.5/24"]"#;
    let claims = [claim("a", &["eth1"], true, keys)];
    for is_strict in [false, true] {
        let networks = networks(&claims, is_strict).expect("networks");
        let args = [("MAC", "02:00:00:00:00:01"), ("IP", "192.0.2.5/24")];
        let args = args.map(|(key, value)| (key, value.to_owned()));
        assert_eq!(networks[2].cni_args, args);
    }
}

#[test]
fn rate_of_a_claim_is_the_limit_in_both_directions() {
    let networks = networks(&[claim("a", &["eth1"], false, "")], true).expect("networks");
    let conf = networks[2].conf().expect("a configuration");
    assert_eq!(
        conf.get("runtimeConfig").expect("limits").to_string(),
        concat!(
            r#"{"bandwidth":{"ingressRate":200000000,"ingressBurst":2000000,"#,
            r#""egressRate":200000000,"egressBurst":2000000}}"#
        )
    );
}

#[test]
fn names_that_the_pod_has_are_refused() {
    let named = |name: &str| format!(r#","interface":"{name}""#);
    for (first, second, taken) in [
        ("eth0", "data1", Some(("a", "eth0"))),
        ("data0", "data0", Some(("b", "data0"))),
        ("data0", "lo", Some(("b", "lo"))),
        ("data0", "data1", None),
    ] {
        let claims = [
            claim("a", &["eth1"], false, &named(first)),
            claim("b", &["eth1"], false, &named(second)),
        ];
        let refused = refuse_taken_names(&attachments(&claims).expect("attachments"));
        let expected = taken.map(|(claim, name)| {
            format!(
                r#"claim web/{claim}: request "r0": "interface": "{name}": the pod has it already"#
            )
        });
        assert_eq!(refused.err().map(|error| error.msg), expected);
    }
    let two = claim("a", &["eth1", "eth2"], false, &named("data0"));
    assert!(refuse_taken_names(&attachments(&[two]).expect("attachments")).is_err());
}

#[test]
fn use_of_a_link_has_type_vlan_and_rate() {
    let keys = r#","network":{"type":"vlan","vlanId":7,"ipam":{"type":"dhcp"}}"#;
    let attachments = attachments(&[claim("a", &["eth1"], true, keys)]).expect("attachments");
    let (_, found) = attachments[0]
        .network(&[], |_| Err(Error::config("no file")))
        .expect("a network");
    let used = ParentUse::of(&attachments[0], &found.definition);
    assert_eq!(
        (used.kind.as_str(), used.vlan_id, used.rate),
        ("vlan", Some(7), Some(200_000_000))
    );
}

#[test]
fn pod_has_a_bounded_number_of_attachments() {
    let claims = vec![claim("a", &["eth1"], false, ""); 65];
    let error = attachments(&claims).expect_err("too many");
    assert_eq!(error.msg, "65 network devices of claims, more than 64");
}
